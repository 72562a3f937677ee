// SPDX-License-Identifier: Apache-2.0
//! `POST /v1/trees`: a list of handles becomes a tree.
//!
//! As JSON, `{"entries": ["lit-07", …]}`, or as the tree's own bytes,
//! concatenated handles of 32 bytes (`application/octet-stream`). The entries
//! need not be on this node.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::Response;
use objects::{BundleRecord, TreeBuilder, TreeView};
use serde::Deserialize;
use store::Awaited;

use super::stored;
use super::tier::{Level, UntilQuery, kept, level};
use crate::behind::Objects;
use crate::body::{blocking, buffered, json, media_type, unsupported_media_type};
use crate::problem::Problem;
use crate::router::Shared;
use crate::text::parse_handle;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Tree {
    entries: Vec<String>,
}

pub(crate) async fn put(
    State(shared): State<Arc<Shared>>,
    until: UntilQuery,
    headers: HeaderMap,
    body: Body,
) -> Result<Response, Problem> {
    let until = level(&shared, until)?;
    let bytes = match media_type(&headers).as_str() {
        "application/json" => {
            let tree: Tree = json(&shared, &headers, body).await?;
            entries(&tree.entries)?.into_bytes()
        }
        "application/octet-stream" => {
            let body = buffered(&shared, &headers, body, shared.options.bundle_max_bytes).await?;
            if let Err(error) = TreeView::from_bytes(&body.bytes) {
                return Err(Problem::bad_request("bad-tree", error.to_string())
                    .suggest("a tree is its entries' handles of 32 bytes each, one after the other"));
            }
            body.bytes
        }
        found => return Err(unsupported_media_type(found, "application/json or application/octet-stream")),
    };
    let place = (until == Level::Memory).then(|| shared.behind.place(bytes.len())).flatten();
    let node = shared.clone();
    let put = blocking(move || {
        let tree = TreeView::from_checked(&bytes);
        let Some(place) = place else { return node.backend.put_tree(tree) };
        let handle = tree.handle();
        node.backend.keep_many(&[BundleRecord::Tree(tree)])?;
        node.behind.write(&node.backend, place, Objects::Tree(bytes));
        Ok(handle)
    });
    let handle = put.await?.map_err(|error| Problem::store(&error))?;
    kept(&shared, until, Awaited::Objects(vec![handle])).await?;
    Ok(stored(handle))
}

fn entries(texts: &[String]) -> Result<TreeBuilder, Problem> {
    let mut tree = TreeBuilder::with_capacity(texts.len());
    for text in texts {
        tree.push(parse_handle(text)?);
    }
    Ok(tree)
}
