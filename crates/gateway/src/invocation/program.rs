// SPDX-License-Identifier: Apache-2.0
//! The answer of a program: what it printed, if it ended well
//! (`docs/spec/functions.md`, section 6).

use std::sync::Arc;

use axum::body::Bytes;
use axum::http::{HeaderValue, StatusCode};
use objects::{Handle, TreeView};
use serde::de::IgnoredAny;

use super::answer::Answer;
use super::not_an_answer;
use super::recording::Recording;
use crate::functions::Served;
use crate::problem::Problem;
use crate::router::Shared;
use crate::routes::objects::load;

/// Bytes of the end of stderr that are in the log.
const LOG_BYTES_MAX: usize = 64 << 10;
/// Bytes of it that a problem repeats.
const TAIL_BYTES: usize = 2 << 10;
/// The longest body that is looked at for what it is.
const LOOKED_AT_BYTES_MAX: usize = 1 << 20;

/// Reads `[status, stdout, stderr, directory…]`.
///
/// # Errors
/// A status other than 0 is a failure of the function.
pub(super) async fn answer(
    shared: &Arc<Shared>,
    served: &Served,
    result: Handle,
    recording: &mut Recording,
) -> Result<Answer, Problem> {
    let no_result = || not_an_answer(served, "is none of a program");
    let entries = match result.names_tree() {
        true => part(shared, result).await?,
        false => return Err(no_result()),
    };
    let entries = TreeView::from_bytes(&entries).map_err(|_| no_result())?;
    let (Some(status), Some(stdout), Some(stderr)) = (entries.get(0), entries.get(1), entries.get(2)) else {
        return Err(no_result());
    };
    let status = status.literal_bytes().and_then(|bytes| bytes.first_chunk()).ok_or_else(no_result)?;
    let status = u64::from_le_bytes(*status);
    let stderr = part(shared, stderr).await?;
    recording.printed(end_of(&stderr, LOG_BYTES_MAX).to_vec());
    if status != 0 {
        return Err(failed(served, status, &stderr));
    }
    let body = part(shared, stdout).await?;
    let kind = served.content_type.clone().unwrap_or_else(|| kind_of(&body));
    Ok(Answer::of_codelet(body, Some(kind)))
}

async fn part(shared: &Arc<Shared>, handle: Handle) -> Result<Bytes, Problem> {
    load(shared, handle).await?.ok_or_else(|| Problem::object_not_found(handle))
}

fn end_of(text: &[u8], bytes_max: usize) -> &[u8] {
    &text[text.len().saturating_sub(bytes_max)..]
}

fn failed(served: &Served, status: u64, stderr: &[u8]) -> Problem {
    let (name, version) = (&served.name, served.version);
    let tail = String::from_utf8_lossy(end_of(stderr, TAIL_BYTES));
    let said = match tail.trim_end() {
        "" => "it printed nothing to stderr".to_owned(),
        tail => format!("its stderr ends with:\n{tail}"),
    };
    let detail = format!("function {name}, version {version}: it ended with exit code {status}; {said}");
    let title = "The function failed";
    Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "exit-code", title, "function", detail).suggest(format!(
        "`sinew logs {name}` shows more of its stderr; the same body gives the same result until another version is deployed"
    ))
}

/// JSON, if it begins with a brace or bracket and is; text, if it is UTF-8.
fn kind_of(body: &[u8]) -> HeaderValue {
    let begins = body.iter().find(|byte| !byte.is_ascii_whitespace());
    let is_looked_at = body.len() <= LOOKED_AT_BYTES_MAX;
    HeaderValue::from_static(if !is_looked_at {
        "application/octet-stream"
    } else if matches!(begins, Some(b'{' | b'[')) && serde_json::from_slice::<IgnoredAny>(body).is_ok() {
        "application/json"
    } else if std::str::from_utf8(body).is_ok() {
        "text/plain; charset=utf-8"
    } else {
        "application/octet-stream"
    })
}

#[cfg(test)]
mod tests;
