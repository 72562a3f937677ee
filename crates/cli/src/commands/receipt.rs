// SPDX-License-Identifier: Apache-2.0
//! Receipts on this side: files with them, and what they say in words.

use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use objects::{
    Cost, Handle, RECEIPT_STEPS_MAX, Receipt, ReceiptStep, SIGNATURE_LEN, STATEMENT_LEN, STEP_LEN,
};
use serde_json::{Value, json};

use crate::calendar::date;
use crate::exit::{Code, Stop};
use crate::node_api::{Node, handle_in};
use crate::output::{Output, from_hex, hex};
use crate::quantity::{exact, grouped, human_bytes, human_time};
use crate::usage::money;

/// Bytes of the longest receipt.
const RECEIPT_BYTES_MAX: usize = STATEMENT_LEN + SIGNATURE_LEN + RECEIPT_STEPS_MAX * STEP_LEN;
/// Parts of the currency in which a receipt has its price.
const PRICE_PARTS: f64 = 1e12;
const PPM: f64 = 1e6;

/// Writes the receipt that an answer tells of to a file.
pub(super) async fn save(
    answer: &Value,
    path: &Path,
    node: &mut Node,
    output: &Output,
) -> anyhow::Result<()> {
    if let Some(why) = answer["no_receipt"].as_str() {
        return Err(Stop::new(Code::Failed, format!("there is no receipt: {why}")).into());
    }
    let bytes = bytes_of(handle_in(&answer["receipt"])?, node).await?;
    std::fs::write(path, &bytes).with_context(|| format!("writing {}", path.display()))?;
    output.say(&format!("{} has the receipt; `sinew verify {0}` tells what it says", path.display()));
    Ok(())
}

/// The bytes of a receipt that a node keeps.
async fn bytes_of(receipt: Handle, node: &mut Node) -> anyhow::Result<Vec<u8>> {
    Ok(node.read_whole(receipt, RECEIPT_BYTES_MAX).await?.to_vec())
}

/// The receipt that an answer tells of, whose signature holds.
pub(super) async fn of_answer(answer: &Value, node: &mut Node) -> anyhow::Result<Receipt> {
    if let Some(why) = answer["no_receipt"].as_str() {
        return Err(Stop::new(Code::Failed, format!("the node gives no receipt: {why}")).into());
    }
    let receipt = Receipt::from_bytes(&bytes_of(handle_in(&answer["receipt"])?, node).await?)
        .context("the node's receipt is none")?;
    anyhow::ensure!(node::is_signed(&receipt), "the node's receipt is not signed by whom it names");
    Ok(receipt)
}

/// Reads a receipt and checks its signature.
pub(super) fn read(path: &Path) -> anyhow::Result<Receipt> {
    let shown = path.display();
    let stop = |code, message: String| Stop::new(code, message);
    let file = std::fs::File::open(path).map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => stop(Code::NotFound, format!("{shown}: there is no such file"))
            .suggest("`sinew eval EXPR --receipt FILE` writes one"),
        _ => stop(Code::Failed, format!("{shown}: {error}")),
    })?;
    let mut bytes = Vec::new();
    let most = RECEIPT_BYTES_MAX as u64 + 1;
    std::io::Read::read_to_end(&mut std::io::Read::take(file, most), &mut bytes)
        .map_err(|error| stop(Code::Failed, format!("{shown}: {error}")))?;
    let receipt = Receipt::from_bytes(&bytes).map_err(|error| {
        stop(Code::Failed, format!("{shown}: {error}"))
            .suggest("do not believe it: it is damaged, or was changed; ask for it again with `sinew eval … --receipt`")
    })?;
    if !node::is_signed(&receipt) {
        let message = format!("{shown}: the signature is not by {}", key_text(&receipt.statement.node));
        return Err(stop(Code::Failed, message)
            .suggest("do not believe it: it was changed after it was signed, or never was signed")
            .into());
    }
    Ok(receipt)
}

/// A public key as people write it.
pub(super) fn key_text(key: &[u8; 32]) -> String {
    format!("ed25519:{}", hex(key).trim_start_matches("0x"))
}

/// [`key_text`], read; the first word can be left out.
pub(super) fn parse_key(text: &str) -> Result<[u8; 32], String> {
    let digits = text.strip_prefix("ed25519:").unwrap_or(text);
    let digits = digits.strip_prefix("0x").unwrap_or(digits);
    let bytes = from_hex(digits).and_then(|bytes| bytes.try_into().ok());
    bytes.ok_or_else(|| "a node's key is 64 hexadecimal digits, as `sinew identity` prints it".to_owned())
}

/// What a receipt says, in lines.
pub(super) fn lines(receipt: &Receipt) -> Vec<String> {
    let statement = &receipt.statement;
    let mut lines = vec![
        format!("goal          {}", statement.goal),
        format!("result        {}", statement.result),
        format!("by            {}", key_text(&statement.node)),
        format!("at            {}", date(statement.issued_ms / 1000)),
        format!(
            "applications  {}, {}",
            grouped(statement.applications),
            match (statement.is_fresh, statement.ran) {
                (true, _) => "all run anew for this receipt".to_owned(),
                (false, ran) if ran == statement.applications => "all run for this receipt".to_owned(),
                (false, 0) => "all remembered".to_owned(),
                (false, ran) => format!("of which {} ran for this receipt", grouped(ran)),
            }
        ),
        format!("cost          {}", cost(&statement.whole)),
    ];
    if statement.ran != statement.applications {
        lines.push(format!("  of it now   {}", cost(&statement.now)));
    }
    if statement.uncounted_nanos > 0 {
        let time = human_time(Duration::from_nanos(statement.uncounted_nanos));
        lines.push(format!("  and         {time} of what counts no fuel, by the node's clock"));
    }
    if let Some(price) = price(receipt) {
        lines.push(format!("price         {price}"));
    }
    lines
}

fn price(receipt: &Receipt) -> Option<String> {
    let told = &receipt.statement.price;
    let amount = money(told.amount? as f64 / PRICE_PARTS, &told.currency);
    let by = human_time(Duration::from_millis(receipt.statement.by_ms));
    Some(match receipt.statement.by_ms {
        0 => amount,
        _ => format!(
            "{amount}, {} % of the whole: it could wait for {by}",
            told.factor_ppm as f64 / PPM * 100.0
        ),
    })
}

/// A cost in words.
pub(super) fn cost(cost: &Cost) -> String {
    let mut parts = vec![
        format!("{} of inputs", human_bytes(cost.inputs_bytes)),
        format!("{} reserved", exact(cost.reserved_bytes)),
        format!("{} fuel", grouped(cost.fuel)),
    ];
    if cost.uncounted > 0 {
        parts.push(format!("{} of them count none", grouped(cost.uncounted)));
    }
    parts.join(", ")
}

/// A receipt for programs.
pub(super) fn json_of(receipt: &Receipt) -> Value {
    let statement = &receipt.statement;
    let step = |step: &ReceiptStep| {
        json!({
            "application": step.application.to_string(), "result": step.result.to_string(),
            "inputs_bytes": step.inputs_bytes, "reserved_bytes": step.reserved_bytes,
            "fuel": step.is_counted.then_some(step.fuel), "ran_now": step.ran_now,
        })
    };
    json!({
        "goal": statement.goal.to_string(), "result": statement.result.to_string(),
        "node": key_text(&statement.node), "issued_ms": statement.issued_ms, "fresh": statement.is_fresh,
        "applications": statement.applications, "ran": statement.ran,
        "cost": cost_json(&statement.whole), "cost_now": cost_json(&statement.now),
        "uncounted_nanos": statement.uncounted_nanos, "by_ms": statement.by_ms,
        "price": statement.price.amount.map(|amount| amount as f64 / PRICE_PARTS),
        "price_factor": statement.price.factor_ppm as f64 / PPM, "currency": statement.price.currency,
        "steps": receipt.steps.iter().map(step).collect::<Vec<_>>(),
    })
}

fn cost_json(cost: &Cost) -> Value {
    json!({
        "inputs_bytes": cost.inputs_bytes, "reserved_bytes": cost.reserved_bytes, "fuel": cost.fuel,
        "uncounted": cost.uncounted,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_as_they_are_written() {
        let key = [0xab; 32];
        assert_eq!(parse_key(&key_text(&key)), Ok(key));
        assert_eq!(parse_key(&hex(&key)), Ok(key));
        for wrong in ["", "ed25519:", "abab", &"ab".repeat(33), "ed25519:zz"] {
            assert!(parse_key(wrong).is_err(), "{wrong}");
        }
    }
}
