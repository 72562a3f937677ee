// SPDX-License-Identifier: Apache-2.0
//! What is long, in parts (S3's multipart uploads): they are sent several at a time,
//! and are an object only when all of them are there.

use std::sync::Arc;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use tokio::runtime::Handle;
use tokio::task::JoinSet;

use super::request::{Asked, Trouble};
use super::{Inner, Target, refused};
use crate::s3;

/// Parts of one object, as S3 has it.
const PARTS_MAX: u64 = 10_000;
/// Parts of one object that are on their way at once.
const AT_ONCE: usize = 4;
/// Bytes of what a server calls an upload, or a part.
const NAME_BYTES_MAX: usize = 1024;

/// Sends all of it.
pub(super) async fn send(inner: &Arc<Inner>, target: &Target, body: &Bytes) -> Result<(), Trouble> {
    let begun = inner.ask(&Asked::new(Method::POST, &target.place).of(target).at("uploads=")?).await?;
    if !begun.status.is_success() {
        return Err(refused(&begun));
    }
    let id = s3::between(&begun.text, "<UploadId>", "</UploadId>").filter(|id| id.len() <= NAME_BYTES_MAX);
    let id = id.ok_or_else(|| Trouble::Lasts("it does not say what the upload is called".to_owned()))?;
    let mut upload = Unfinished {
        inner: Arc::clone(inner),
        target: target.clone(),
        id: Some(s3::encoded(id.as_bytes(), false)),
    };
    let tags = upload.parts(body).await?;
    upload.put_together(&tags, body.len() as u64).await
}

/// An upload that is taken back when it is dropped, unless it was finished.
struct Unfinished {
    inner: Arc<Inner>,
    target: Target,
    /// As it stands in URLs; none: it is finished.
    id: Option<String>,
}

impl Unfinished {
    fn id(&self) -> &str {
        self.id.as_deref().unwrap_or_default()
    }

    /// Sends the parts; their entity tags.
    async fn parts(&self, body: &Bytes) -> Result<Vec<String>, Trouble> {
        let len = part_bytes(body.len() as u64, self.inner.options.part_bytes);
        let pieces: Vec<Bytes> =
            (0..body.len()).step_by(len).map(|at| body.slice(at..(at + len).min(body.len()))).collect();
        let mut tags = vec![String::new(); pieces.len()];
        let mut pieces = (1..).zip(pieces);
        // Dropping it ends those that are on their way.
        let mut sending = JoinSet::new();
        loop {
            while sending.len() < AT_ONCE
                && let Some((number, piece)) = pieces.next()
            {
                let (inner, target, id) =
                    (Arc::clone(&self.inner), self.target.clone(), self.id().to_owned());
                sending.spawn(async move {
                    Ok::<_, Trouble>((number, part(&inner, &target, &id, number, piece).await?))
                });
            }
            let Some(sent) = sending.join_next().await else { return Ok(tags) };
            let (number, tag): (usize, String) =
                sent.map_err(|error| Trouble::Lasts(error.to_string()))??;
            tags[number - 1] = tag;
        }
    }

    async fn put_together(&mut self, tags: &[String], len: u64) -> Result<(), Trouble> {
        let parts: String = (1..)
            .zip(tags)
            .map(|(number, tag): (usize, _)| {
                format!("<Part><PartNumber>{number}</PartNumber><ETag>{tag}</ETag></Part>")
            })
            .collect();
        let list = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
        let asked = Asked::new(Method::POST, &self.target.place).at(&format!("uploadId={}", self.id()))?;
        let answer = self.inner.ask(&asked.with(Bytes::from(list)).await?).await?;
        let is_done = answer.status.is_success() && !answer.text.contains("<Error>");
        // Who asks again because an answer was lost hears that there is no such upload.
        let may_be_done = answer.status == StatusCode::NOT_FOUND && answer.tried_before > 0;
        if is_done || (may_be_done && self.inner.is_there(&self.target, len).await?) {
            self.id = None;
            return Ok(());
        }
        Err(refused(&answer))
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        let (Some(id), Ok(runtime)) = (self.id.take(), Handle::try_current()) else { return };
        let (inner, place) = (Arc::clone(&self.inner), self.target.place.clone());
        runtime.spawn(async move {
            // Where it fails, the bucket's own rules take it away.
            if let Ok(asked) = Asked::new(Method::DELETE, &place).at(&format!("uploadId={id}")) {
                _ = inner.ask(&asked).await;
            }
        });
    }
}

async fn part(
    inner: &Inner,
    target: &Target,
    id: &str,
    number: usize,
    piece: Bytes,
) -> Result<String, Trouble> {
    let asked = Asked::new(Method::PUT, &target.place).at(&format!("partNumber={number}&uploadId={id}"))?;
    let answer = inner.ask(&asked.with(piece).await?).await?;
    if !answer.status.is_success() {
        return Err(refused(&answer));
    }
    // It is to stand in a text that is not to be changed by it.
    let is_plain = |tag: &String| {
        (1..=NAME_BYTES_MAX).contains(&tag.len())
            && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"\"-_+/=.".contains(&byte))
    };
    answer
        .etag
        .filter(is_plain)
        .ok_or_else(|| Trouble::Lasts(format!("it gives part {number} no entity tag")))
}

/// How long parts are: whole mebibytes where they are more than the least.
fn part_bytes(len: u64, least: u64) -> usize {
    let needed = len.div_ceil(PARTS_MAX);
    let bytes = if needed <= least { least } else { needed.next_multiple_of(1 << 20) };
    usize::try_from(bytes.max(1)).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_object_has_more_parts_than_there_may_be() {
        const MIB: u64 = 1 << 20;
        for len in [1, 33 * MIB, 160_000 * MIB, 160_000 * MIB + 1, 5 << 40] {
            let part = part_bytes(len, 16 * MIB) as u64;
            assert!(len.div_ceil(part) <= PARTS_MAX && part >= 16 * MIB, "{len} in parts of {part}");
        }
        assert_eq!(part_bytes(33 * MIB, 16 * MIB), 16 << 20);
        assert_eq!(part_bytes(160_000 * MIB + 1, 16 * MIB), 17 << 20);
    }
}
