// SPDX-License-Identifier: Apache-2.0
//! `sinew put --lazy`: names data by its URL, for the node to fetch when it is needed.

use clap::Args;
use objects::{Handle, Source, Validator, sha256};

use crate::exit::{Code, Stop};
use crate::node_api::Node;
use crate::output::Output;
use crate::progress::Progress;
use crate::upload::Uplink;

/// Where data is, and what it is known by.
#[derive(Debug, Args)]
#[group(id = "source", multiple = true)]
pub(super) struct Lazy {
    /// Store nothing; print the computation that fetches this URL when it is needed.
    /// May be repeated: later ones are mirrors
    #[arg(long = "lazy", value_name = "URL", conflicts_with_all = ["files", "tree", "shards", "keys"])]
    pub(super) urls: Vec<String>,
    /// How many bytes it has
    #[arg(long, value_name = "BYTES", requires = "urls")]
    size: Option<u64>,
    /// The strong entity tag that its server gives it, with or without its quotes
    #[arg(long, value_name = "TAG", requires = "urls", conflicts_with = "digest")]
    etag: Option<String>,
    /// What it hashes to: `sha256:` and 64 hexadecimal digits, or the handle of a blob
    #[arg(long, value_name = "DIGEST", requires = "urls")]
    digest: Option<String>,
}

impl Lazy {
    fn source(&self) -> Result<Source, Stop> {
        let wrong = |why: String| Stop::new(Code::Usage, why);
        let validator = match (&self.etag, &self.digest) {
            (Some(etag), _) if etag.starts_with('"') || etag.starts_with("W/") => {
                Validator::Etag(etag.clone())
            }
            (Some(etag), _) => Validator::Etag(format!("\"{etag}\"")),
            (None, Some(digest)) => read_digest(digest).ok_or_else(|| {
                wrong(format!("{digest} is no digest")).suggest("sha256:64 HEXADECIMAL DIGITS, or blob-…")
            })?,
            (None, None) => Validator::None,
        };
        let source = Source { urls: self.urls.clone(), size: self.size, validator };
        source.check().map_err(|error| wrong(error.to_string()))?;
        if let Some(url) = source.urls.iter().find(|url| !is_fetched(url)) {
            return Err(wrong(format!("{url} begins with none of https://, http:// and s3://")));
        }
        Ok(source)
    }
}

fn is_fetched(url: &str) -> bool {
    ["https://", "http://", "s3://"]
        .iter()
        .any(|scheme| url.get(..scheme.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(scheme)))
}

fn read_digest(text: &str) -> Option<Validator> {
    if let Some(digits) = text.strip_prefix("sha256:") {
        return sha256(&digits.to_ascii_lowercase()).map(Validator::Sha256);
    }
    let handle: Handle = text.parse().ok()?;
    let handle = if handle.is_value() && !handle.names_tree() { handle.lowered()? } else { return None };
    // What fits into its handle needs not be fetched.
    handle.literal_bytes().is_none().then_some(Validator::Ref(handle))
}

/// Stores what says where the data is; the thunk that fetches it.
pub(super) async fn put(lazy: &Lazy, node: &mut Node, output: &Output) -> anyhow::Result<Handle> {
    let source = lazy.source()?;
    if !source.is_bound() {
        output.say(
            "what is there may change: it is asked for again by each request (name it by --digest, or by --etag and --size)",
        );
    }
    let (tree, blobs) = source.to_tree();
    let mut uplink = Uplink::new(node, output, Progress::bytes(output, &lazy.urls[0], None, false));
    for blob in blobs.into_iter().filter(|blob| Handle::literal(blob).is_none()) {
        uplink.blob(blob).await?;
    }
    let definition = uplink.tree(&tree).await?;
    uplink.flush().await?;
    let thunk = definition.application();
    thunk.ok_or_else(|| Stop::new(Code::Failed, format!("{definition} cannot be applied")).into())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn lazy(etag: Option<&str>, digest: Option<&str>) -> Lazy {
        Lazy {
            urls: vec!["https://example.com/x".to_owned()],
            size: None,
            etag: etag.map(str::to_owned),
            digest: digest.map(str::to_owned),
        }
    }

    #[test]
    fn digests_and_tags_are_read_as_people_write_them() {
        let hex = "AB".repeat(32);
        let sha = lazy(None, Some(&format!("sha256:{hex}"))).source().unwrap();
        assert_eq!(sha.validator, Validator::Sha256([0xab; 32]));
        let blob = Handle::blob(&[1; 100]);
        let by_handle = lazy(None, Some(&blob.to_string())).source().unwrap();
        assert_eq!(by_handle.validator, Validator::Ref(blob.lowered().unwrap()));
        for tag in ["a-1", "\"a-1\""] {
            let source = lazy(Some(tag), None).source().unwrap();
            assert_eq!(source.validator, Validator::Etag("\"a-1\"".to_owned()));
        }
        assert_eq!(lazy(None, None).source().unwrap().validator, Validator::None);
    }

    #[test]
    fn what_names_nothing_is_refused() {
        for digest in ["", "sha256:ab", "md5:00", "lit-01", &hex_tree()] {
            assert!(lazy(None, Some(digest)).source().is_err(), "{digest}");
        }
        assert!(lazy(Some("W/\"a\""), None).source().is_err());
        for url in ["ftp://example.com/", "example.com", "/path", "http:/x"] {
            let lazy = Lazy { urls: vec![url.to_owned()], ..lazy(None, None) };
            assert!(lazy.source().is_err(), "{url}");
        }
    }

    fn hex_tree() -> String {
        Handle::tree(&[]).unwrap().to_string()
    }
}
