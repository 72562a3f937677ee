// SPDX-License-Identifier: Apache-2.0
//! What lies below a prefix of one bucket: written, read in parts, listed, taken away.

use std::ops::Range;

use bytes::Bytes;
use hyper::{Method, StatusCode};

use super::request::{Asked, Trouble};
use super::{Upload, Uploads, refused};
use crate::dial::Place;
use crate::s3;

/// Names that a server lists at once.
const LISTED: usize = 1000;
/// Bytes of a list: a key has 1024 at most, and as much around it.
const LIST_BYTES_MAX: u64 = 4 << 20;
/// Pages without a name that are looked at before one has some.
const EMPTY_PAGES_MAX: usize = 1000;
const CONTENT_TYPE: &str = "application/octet-stream";

/// A prefix of a bucket that may be written to.
#[derive(Clone, Debug)]
pub struct BucketFolder {
    uploads: Uploads,
    /// `s3://BUCKET/PREFIX/`, or `s3://BUCKET/`.
    url: String,
    prefix: String,
}

impl Uploads {
    /// What lies below `s3://BUCKET/PREFIX`.
    ///
    /// # Errors
    /// Why it cannot be written to, as far as can be told without asking anybody.
    pub fn folder(&self, url: &str) -> Result<BucketFolder, String> {
        let rest = url.strip_prefix("s3://").ok_or_else(|| format!("{url:?} is not s3://BUCKET/PREFIX"))?;
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/');
        let is_char = |byte: u8| byte.is_ascii_alphanumeric() || b"-._/".contains(&byte);
        if prefix.len() > 256 || !prefix.bytes().all(is_char) || prefix.contains("//") {
            return Err(format!(
                "{url:?}: a prefix has up to 256 letters, digits, - . _ and single / between them"
            ));
        }
        let prefix = if prefix.is_empty() { String::new() } else { format!("{prefix}/") };
        let url = format!("s3://{bucket}/{prefix}");
        self.check(&format!("{url}FORMAT"))?;
        Ok(BucketFolder { uploads: self.clone(), url, prefix })
    }
}

impl BucketFolder {
    /// `s3://BUCKET/PREFIX/`.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn place(&self, name: &str) -> Result<Place, String> {
        self.uploads.0.buckets.writable(&format!("{}{name}", self.url))
    }

    /// Writes what has a name, whatever was there. A mark names contents that no others have: what is there with
    /// the same is not sent.
    ///
    /// # Errors
    /// Why it may not be there.
    pub async fn put(&self, name: &str, body: Bytes, mark: Option<&str>) -> Result<(), String> {
        let inner = &self.uploads.0;
        if let Some(mark) = mark {
            let (url, content_type) = (format!("{}{name}", self.url), CONTENT_TYPE.to_owned());
            let upload = Upload { url, content_type, mark: mark.to_owned(), body };
            return self.uploads.send(&upload).await.map(drop).map_err(|error| error.why);
        }
        let asked = Asked::new(Method::PUT, &self.place(name)?).with(body).await.map_err(told)?;
        match inner.ask(&asked).await.map_err(told)? {
            answer if answer.status.is_success() => Ok(()),
            answer => Err(told(refused(&answer))),
        }
    }

    /// The bytes of what has a name that are in the range; less where it ends before. `None`: there is none.
    ///
    /// # Errors
    /// Why they do not come.
    pub async fn get(&self, name: &str, range: Range<u64>) -> Result<Option<Bytes>, String> {
        if range.is_empty() {
            return Ok(Some(Bytes::new()));
        }
        let asked = Asked::new(Method::GET, &self.place(name)?).ranged(range.clone());
        let answer = self.uploads.0.ask(&asked).await.map_err(told)?;
        match answer.status {
            StatusCode::PARTIAL_CONTENT => Ok(Some(answer.bytes)),
            // Who knows no ranges sends all; and of what is empty there is no part.
            StatusCode::OK if range.start == 0 => Ok(Some(answer.bytes)),
            StatusCode::RANGE_NOT_SATISFIABLE => Ok(Some(Bytes::new())),
            StatusCode::NOT_FOUND if s3::reason(&answer.text) != Some("NoSuchBucket") => Ok(None),
            _ => Err(told(refused(&answer))),
        }
    }

    /// Names that begin so and come behind `after`, in their order; 1,000 at most. Less than that, but none only
    /// at the end.
    ///
    /// # Errors
    /// Why they cannot be told.
    pub async fn list(&self, begin: &str, after: &str) -> Result<Vec<String>, String> {
        let whole = |name: &str| s3::encoded(format!("{}{name}", self.prefix).as_bytes(), false);
        let mut query = format!("list-type=2&max-keys={LISTED}&prefix={}", whole(begin));
        if !after.is_empty() {
            query += &format!("&start-after={}", whole(after));
        }
        for _ in 0..EMPTY_PAGES_MAX {
            let text = self.page(&query).await?;
            let keys = text.split("<Key>").skip(1).filter_map(|rest| rest.split_once("</Key>"));
            let mut names: Vec<String> =
                keys.filter_map(|(key, _)| key.strip_prefix(&self.prefix).map(str::to_owned)).collect();
            names.sort_unstable();
            let is_more = s3::between(&text, "<IsTruncated>", "</IsTruncated>") == Some("true");
            if !names.is_empty() || !is_more {
                return Ok(names);
            }
            // A server may have looked for long and found nothing yet.
            let next = s3::between(&text, "<NextContinuationToken>", "</NextContinuationToken>");
            let next = next.ok_or("it says that there are more names, and not where they begin")?;
            let next = s3::encoded(next.as_bytes(), false);
            // Parameters stand in the order of their names.
            query =
                format!("continuation-token={next}&list-type=2&max-keys={LISTED}&prefix={}", whole(begin));
        }
        Err(format!("it has shown {EMPTY_PAGES_MAX} pages without a name, and says that there are more"))
    }

    /// A page of a list.
    async fn page(&self, query: &str) -> Result<String, String> {
        let asked = Asked::new(Method::GET, &self.place("FORMAT")?.root()).at(query).map_err(told)?;
        let answer = self.uploads.0.ask(&asked.taking(LIST_BYTES_MAX)).await.map_err(told)?;
        if !answer.status.is_success() {
            return Err(told(refused(&answer)));
        }
        // One that broke off must not pass for the end.
        let is_cut = !answer.bytes.trim_ascii_end().ends_with(b"</ListBucketResult>");
        if is_cut && (answer.bytes.len() as u64) < LIST_BYTES_MAX {
            return Err("its list of names breaks off".to_owned());
        }
        Ok(String::from_utf8_lossy(&answer.bytes).into_owned())
    }

    /// Takes away what has a name, if anything has.
    ///
    /// # Errors
    /// Why it may be there still.
    pub async fn remove(&self, name: &str) -> Result<(), String> {
        let asked = Asked::new(Method::DELETE, &self.place(name)?);
        match self.uploads.0.ask(&asked).await.map_err(told)? {
            answer if answer.status.is_success() || answer.status == StatusCode::NOT_FOUND => Ok(()),
            answer => Err(told(refused(&answer))),
        }
    }
}

fn told(trouble: impl Into<Trouble>) -> String {
    match trouble.into() {
        Trouble::Heals(why, _) | Trouble::Lasts(why) => why,
    }
}
