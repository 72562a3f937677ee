// SPDX-License-Identifier: Apache-2.0
//! `sinew identity`: the public key that a node signs receipts with.

use anyhow::Context as _;
use bytes::Bytes;
use hyper::Request;

use super::receipt::{key_text, parse_key};
use crate::client::whole;
use crate::node_api::Node;
use crate::output::Output;

pub(crate) async fn run(node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let identity = node.json(Request::get("/v1/identity"), whole(Bytes::new())).await?;
    if output.is_json() {
        return output.json(&identity);
    }
    let key = identity["public_key"].as_str().context("the node's answer has no key")?;
    let key = parse_key(key).map_err(|_| anyhow::anyhow!("the node's answer has a bad key"))?;
    output.line(&key_text(&key))?;
    if output.is_watched() {
        output.say("give it to who checks this node's receipts: `sinew verify FILE --key KEY`");
    }
    Ok(())
}
