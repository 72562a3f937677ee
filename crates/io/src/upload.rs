// SPDX-License-Identifier: Apache-2.0
//! Objects that are written to buckets, over HTTP/1.1.
//!
//! Only buckets that the node's settings open for writing are written to. The signature
//! of each request covers what its payload hashes to, so that a server takes no other
//! bytes than those that were meant. What is long goes in parts, several at a time; a
//! part that does not arrive is sent again, and an upload that is given up is taken
//! back. Beside an object stands its *mark*, which names its contents: who finds it
//! there with the same length sends nothing.

mod folder;
mod parts;
mod request;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hyper::{Method, StatusCode};
use tokio::sync::Semaphore;

use crate::allow::AllowList;
use crate::dial::{Dialer, Place, Reach};
use crate::link::LinkOptions;
use crate::net::{Internet, Net};
use crate::s3::{self, Buckets};
pub use folder::BucketFolder;
use request::{Answer, Asked, Trouble};

/// What the mark's header is called; buckets keep headers that begin so with an object.
const MARK: &str = "x-amz-meta-sinew";
/// Bytes of a mark, and of a type.
const TEXT_BYTES_MAX: usize = 256;

/// Bounds of what is sent.
#[derive(Debug, Clone, Copy)]
pub struct UploadOptions {
    /// Requests at once.
    pub at_once: usize,
    /// Bytes of a part, at least; what has no more than two goes as it is.
    pub part_bytes: u64,
    /// For looking up a name, connecting, and TLS.
    pub connect_timeout: Duration,
    /// For an answer, beside the time that sending takes.
    pub answer_timeout: Duration,
    /// Bytes a second that a server takes at least.
    pub rate_min: u64,
    /// For how long a connection is kept that nobody uses. As many are kept as there may be requests.
    pub idle_timeout: Duration,
    /// Attempts of one request.
    pub attempts_max: u32,
    /// Before the second attempt; twice as long before each further one.
    pub pause: Duration,
    /// The longest pause, also if the server asks for a longer one.
    pub pause_max: Duration,
}

impl Default for UploadOptions {
    fn default() -> Self {
        Self {
            at_once: 8,
            part_bytes: 16 << 20,
            connect_timeout: Duration::from_secs(10),
            answer_timeout: Duration::from_secs(60),
            rate_min: 64 << 10,
            idle_timeout: Duration::from_secs(15),
            attempts_max: 6,
            pause: Duration::from_millis(200),
            pause_max: Duration::from_secs(10),
        }
    }
}

/// What is to be written.
#[derive(Debug, Clone)]
pub struct Upload {
    /// `s3://BUCKET/KEY`.
    pub url: String,
    /// What the contents are, for who reads them: `text/csv`.
    pub content_type: String,
    /// Names the contents: no others have it.
    pub mark: String,
    /// The contents.
    pub body: Bytes,
}

/// How an upload ended well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Uploaded {
    /// It was written.
    Written,
    /// It was there already.
    Known,
}

/// Why something was not written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{url}: {why}")]
pub struct UploadError {
    /// Where it was to go.
    pub url: String,
    /// For people.
    pub why: String,
    /// It is not written today or tomorrow: the URL or the settings are wrong.
    pub is_lasting: bool,
}

/// Writes objects.
#[derive(Clone)]
pub struct Uploads(Arc<Inner>);

struct Inner {
    options: UploadOptions,
    buckets: Buckets,
    dialer: Dialer,
    turns: Semaphore,
}

impl fmt::Debug for Uploads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uploads").field("options", &self.0.options).finish_non_exhaustive()
    }
}

/// What all requests for one object have in common.
#[derive(Clone)]
struct Target {
    place: Place,
    content_type: String,
    mark: String,
}

impl Uploads {
    /// To these buckets, from the node's network.
    pub fn new(options: UploadOptions, buckets: Buckets) -> Self {
        Self::with_net(options, buckets, Internet)
    }

    /// From another network.
    pub fn with_net(options: UploadOptions, buckets: Buckets, net: impl Net + 'static) -> Self {
        // Where buckets are is free: the node's owner has said it.
        let UploadOptions { at_once, idle_timeout: idle_max, .. } = options;
        let kept = LinkOptions { total_max: at_once, per_host_max: at_once, idle_max };
        let dialer = Dialer::new(Reach::Named(AllowList::default(), "s3"), net).keeping(kept);
        Self(Arc::new(Inner { options, buckets, dialer, turns: Semaphore::new(at_once) }))
    }

    /// Whether a URL can be written to, as far as can be told without asking anybody.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn check(&self, url: &str) -> Result<(), String> {
        self.0.buckets.writable(url).map(drop)
    }

    /// Writes an object, unless it is there. Dropping the future ends it; parts that
    /// were sent are then taken back.
    ///
    /// # Errors
    /// Why it was not written. What stood there before may stand there still.
    pub async fn send(&self, upload: &Upload) -> Result<Uploaded, UploadError> {
        let failed = |trouble: Trouble| {
            let (why, is_lasting) = match trouble {
                Trouble::Heals(why, _) => (why, false),
                Trouble::Lasts(why) => (why, true),
            };
            UploadError { url: upload.url.clone(), why, is_lasting }
        };
        let target = self.0.target(upload).map_err(|why| failed(Trouble::Lasts(why)))?;
        let len = upload.body.len() as u64;
        if self.0.is_there(&target, len).await.map_err(failed)? {
            return Ok(Uploaded::Known);
        }
        if len <= 2 * self.0.options.part_bytes {
            self.0.whole(&target, upload.body.clone()).await.map_err(failed)?;
        } else {
            parts::send(&self.0, &target, &upload.body).await.map_err(failed)?;
        }
        Ok(Uploaded::Written)
    }
}

impl Inner {
    fn target(&self, upload: &Upload) -> Result<Target, String> {
        let is_text = |text: &str| {
            (1..=TEXT_BYTES_MAX).contains(&text.len())
                && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        };
        if !is_text(&upload.content_type) {
            return Err(format!("its type has 1 to {TEXT_BYTES_MAX} visible characters"));
        }
        debug_assert!(is_text(&upload.mark), "handles are short texts");
        let (content_type, mark) = (upload.content_type.clone(), upload.mark.clone());
        Ok(Target { place: self.buckets.writable(&upload.url)?, content_type, mark })
    }

    /// Whether the object is there with its mark. Who may not look writes.
    async fn is_there(&self, target: &Target, len: u64) -> Result<bool, Trouble> {
        let answer = self.ask(&Asked::new(Method::HEAD, &target.place)).await?;
        match answer.status {
            StatusCode::OK => Ok(answer.mark.as_deref() == Some(&target.mark) && answer.len == Some(len)),
            StatusCode::NOT_FOUND | StatusCode::FORBIDDEN => Ok(false),
            _ => Err(refused(&answer)),
        }
    }

    async fn whole(&self, target: &Target, body: Bytes) -> Result<(), Trouble> {
        let asked = Asked::new(Method::PUT, &target.place).of(target).with(body).await?;
        match self.ask(&asked).await? {
            answer if answer.status.is_success() => Ok(()),
            answer => Err(refused(&answer)),
        }
    }
}

/// An answer that is final, and no success.
fn refused(answer: &Answer) -> Trouble {
    let mut why = format!("it answers {}", answer.status);
    if let Some(reason) = s3::reason(&answer.text) {
        why += &format!(" ({reason})");
    }
    if answer.status.is_redirection() {
        why += ": the bucket is elsewhere, or in another region";
    }
    Trouble::Lasts(why)
}

#[cfg(test)]
mod tests;
