// SPDX-License-Identifier: Apache-2.0
//! Where spans of requests go: a collector that takes OTLP over HTTP.

use std::collections::BTreeMap;

use axum::body::Bytes;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderName, HeaderValue};
use gateway::{Sending, Unsent};
use io::{Post, PostError};
use serde::Deserialize;

/// Whose spans are sent where.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Traces {
    /// Of the collector, as `http://localhost:4318/v1/traces`.
    pub url: String,
    /// What it wants to see besides, as a key.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// What is said of this node: attributes of the resource.
    #[serde(default)]
    pub resource: BTreeMap<String, String>,
    /// Of the requests that bring no trace, the part that is told: 0 to 1.
    #[serde(default = "all")]
    pub ratio: f64,
}

const fn all() -> f64 {
    1.0
}

/// What the node is called unless told otherwise.
const SERVICE_NAME: &str = "sinew";

impl Traces {
    /// The gateway's part of it.
    pub(crate) fn options(&self) -> gateway::TraceOptions {
        let mut resource = self.resource.clone();
        resource.entry("service.name".to_owned()).or_insert_with(|| SERVICE_NAME.to_owned());
        gateway::TraceOptions { resource: resource.into_iter().collect(), ratio: self.ratio }
    }
}

/// The collector of a node.
#[derive(Debug)]
pub(crate) struct Collector {
    post: Post,
    url: String,
    headers: HeaderMap,
}

impl Collector {
    /// `Err`: why there can be none like that.
    pub(crate) fn new(traces: &Traces) -> Result<Self, String> {
        let post = Post::to_anywhere();
        post.check(&traces.url).map_err(|why| format!("traces: {:?}: {why}", traces.url))?;
        if !(0.0..=1.0).contains(&traces.ratio) {
            return Err(format!("traces: a ratio is from 0 to 1, and not {}", traces.ratio));
        }
        let mut headers = HeaderMap::new();
        for (name, value) in &traces.headers {
            // Its value may be a secret.
            let wrong = || format!("traces: {name:?} or its value cannot be a header");
            let name = HeaderName::from_bytes(name.as_bytes()).map_err(|_| wrong())?;
            headers.insert(name, HeaderValue::from_str(value).map_err(|_| wrong())?);
        }
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        Ok(Self { post, url: traces.url.clone(), headers })
    }
}

impl gateway::Collector for Collector {
    fn send(&self, body: Bytes) -> Sending<'_> {
        Box::pin(async move {
            self.post.send(&self.url, self.headers.clone(), body).await.map_err(|error| match error {
                PostError::Refused(why) => Unsent::Never(why),
                PostError::Failed(why) => Unsent::Again(why),
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_collector_that_can_be_none_is_refused_when_the_node_starts() {
        let traces = |text: &str| toml::from_str::<Traces>(text).unwrap();
        let good = traces("url = \"http://localhost:4318/v1/traces\"\nheaders = { x-key = \"a\" }");
        assert!(Collector::new(&good).is_ok());
        assert_eq!(good.options().resource, [("service.name".to_owned(), "sinew".to_owned())]);
        for wrong in [
            "url = \"localhost:4318\"",
            "url = \"grpc://localhost:4317\"",
            "url = \"http://localhost:4318\"\nratio = 1.5",
            "url = \"http://localhost:4318\"\nheaders = { \"a b\" = \"c\" }",
        ] {
            let error = Collector::new(&traces(wrong)).unwrap_err();
            assert!(error.starts_with("traces: "), "{error}");
        }
        let secret = traces("url = \"http://localhost:4318\"\nheaders = { key = \"s3cret\\nx\" }");
        assert!(!Collector::new(&secret).unwrap_err().contains("s3cret"));
    }
}
