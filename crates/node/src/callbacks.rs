// SPDX-License-Identifier: Apache-2.0
//! Results of calls that go to where callers want them: `io` sends them.

use axum::body::Bytes;
use axum::http::HeaderMap;
use gateway::{Sending, Unsent};
use io::{AllowList, Post, PostError, Unreadable};

/// Who sends results.
#[derive(Debug)]
pub(crate) struct Callbacks(Post);

impl Callbacks {
    /// Of private addresses those may be named that are in this list.
    pub(crate) fn new(private: &[String]) -> Result<Self, Unreadable> {
        let private = AllowList::of_addresses(private.iter().map(String::as_str))?;
        Ok(Self(Post::new(private)))
    }
}

impl gateway::Callbacks for Callbacks {
    fn check(&self, url: &str) -> Result<(), String> {
        self.0.check(url)
    }

    fn send<'a>(&'a self, url: &'a str, headers: HeaderMap, body: Bytes) -> Sending<'a> {
        Box::pin(async move {
            self.0.send(url, headers, body).await.map_err(|error| match error {
                PostError::Refused(why) => Unsent::Never(why),
                PostError::Failed(why) => Unsent::Again(why),
            })
        })
    }
}
