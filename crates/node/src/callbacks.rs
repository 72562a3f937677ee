// SPDX-License-Identifier: Apache-2.0
//! Results of calls that go to where callers want them: `io` signs and sends them.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use axum::body::Bytes;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use gateway::{Sending, Unsent};
use io::{AllowList, Post, PostError, Signer, Unreadable};

use crate::secrets::Secrets;

/// What names a result, the same for all attempts to send it.
const EVENT_ID: &str = "ce-id";

/// Who sends results.
#[derive(Debug)]
pub(crate) struct Callbacks {
    post: Post,
    secrets: Arc<Secrets>,
}

impl Callbacks {
    /// Of private addresses those may be named that are in this list.
    pub(crate) fn new(private: &[String], secrets: Arc<Secrets>) -> Result<Self, Unreadable> {
        let private = AllowList::of_addresses(private.iter().map(String::as_str))?;
        Ok(Self { post: Post::new(private), secrets })
    }

    /// Signs a result, if the node has a secret for that.
    fn sign(&self, headers: &mut HeaderMap, body: &[u8]) -> Result<(), Unsent> {
        let Some(secret) = self.secrets.for_signing() else { return Ok(()) };
        // It was looked at when it was set: no result goes out unsigned for want of it.
        let signer = Signer::read(&secret).map_err(Unsent::Again)?;
        let id = headers.get(EVENT_ID).and_then(|id| id.to_str().ok()).unwrap_or_default().to_owned();
        let now_s = now_s();
        let signed = [
            ("webhook-id", id.clone()),
            ("webhook-timestamp", now_s.to_string()),
            ("webhook-signature", signer.sign(&id, now_s, body)),
        ];
        for (name, value) in signed {
            let value = HeaderValue::try_from(value).map_err(|error| Unsent::Again(error.to_string()))?;
            headers.insert(HeaderName::from_static(name), value);
        }
        Ok(())
    }
}

impl gateway::Callbacks for Callbacks {
    fn check(&self, url: &str) -> Result<(), String> {
        self.post.check(url)
    }

    fn send<'a>(&'a self, url: &'a str, mut headers: HeaderMap, body: Bytes) -> Sending<'a> {
        Box::pin(async move {
            self.sign(&mut headers, &body)?;
            self.post.send(url, headers, body).await.map_err(|error| match error {
                PostError::Refused(why) => Unsent::Never(why),
                PostError::Failed(why) => Unsent::Again(why),
            })
        })
    }
}

#[expect(clippy::disallowed_methods, reason = "receivers compare it with their time of day")]
fn now_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}
