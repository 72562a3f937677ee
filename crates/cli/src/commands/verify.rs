// SPDX-License-Identifier: Apache-2.0
//! `sinew verify`: whether a receipt is what its node signed. Asks no node.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::receipt::{json_of, key_text, lines, parse_key, read};
use crate::exit::{Code, Stop};
use crate::output::Output;

/// Which receipt, and by whom.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sinew verify big.receipt\n  sinew verify big.receipt --key $(sinew identity)\n\n\
    It tells that whoever has the key said so: this goal led to this result, at this cost, and nobody changed a\n\
    bit of it since. It does not tell that the result is right (`sinew audit` runs the computation again), nor,\n\
    without --key, whose key it is. Where the node's clock stood and what time was taken is the node's word."
)]
pub(crate) struct Arguments {
    /// What `sinew eval --receipt` wrote
    #[arg(value_name = "FILE")]
    receipt: PathBuf,
    /// The key that it has to be signed with, as `sinew identity` prints it
    #[arg(long, value_name = "KEY", value_parser = parse_key)]
    key: Option<[u8; 32]>,
}

pub(crate) fn run(arguments: &Arguments, output: &Output) -> anyhow::Result<()> {
    let receipt = read(&arguments.receipt)?;
    let shown = arguments.receipt.display();
    let signer = receipt.statement.node;
    if let Some(key) = arguments.key.filter(|key| *key != signer) {
        let message =
            format!("{shown}: it is signed, but by {} and not by {}", key_text(&signer), key_text(&key));
        return Err(Stop::new(Code::Failed, message)
            .suggest("a node that lost its key or had it replaced has another one: `sinew identity`")
            .into());
    }
    if output.is_json() {
        let mut told = json_of(&receipt);
        told["signed"] = true.into();
        told["key_expected"] = arguments.key.map_or(json!(null), |_| true.into());
        return output.json(&told);
    }
    output.line(&format!("{shown}: the signature holds"))?;
    lines(&receipt).iter().try_for_each(|line| output.line(&format!("  {line}")))?;
    if output.is_watched() {
        if arguments.key.is_none() {
            output.say("whose key that is, it does not tell: --key KEY, with the key that the node's owner gives you");
        }
        output.say(&format!("`sinew audit {shown}` runs the computation again and compares"));
    }
    Ok(())
}
