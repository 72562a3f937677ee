// SPDX-License-Identifier: Apache-2.0
//! `sinew put --keys`: sorted lines of keys and values as a search tree.

use std::io::{self, BufRead};
use std::path::Path;

use objects::{Handle, TreeBuilder};

use crate::directory::unreadable;
use crate::exit::{Code, Stop};
use crate::search_tree::{ARITY_MAX, ARITY_MIN, KEY_LEN_MAX, Node, Plant, Wrong};
use crate::upload::Uplink;

/// Lines that are read before any of them is sent: so many bytes, and the last line.
const BATCH_BYTES: usize = 1 << 20;
/// A line is held in memory.
const LINE_BYTES_MAX: u64 = 1 << 20;

/// Reads an arity as people write it.
pub(super) fn parse_arity(text: &str) -> Result<u32, String> {
    let arity = text.replace('_', "").parse::<u32>().ok();
    arity
        .filter(|arity| (ARITY_MIN..=ARITY_MAX).contains(arity))
        .ok_or_else(|| format!("a node of a search tree has {ARITY_MIN} to {ARITY_MAX} children"))
}

/// The root of the tree of `lines`.
pub(super) async fn put(
    uplink: &mut Uplink<'_>,
    file: &Path,
    lines: Box<dyn BufRead + Send>,
    arity: u32,
) -> anyhow::Result<Handle> {
    let mut plant = Plant::new(arity);
    let mut lines = Lines { reader: lines, number: 0 };
    loop {
        // Reading stdin may take for ever; Ctrl-C shall not wait for it.
        let (rest, batch) = tokio::task::spawn_blocking(move || {
            let batch = lines.batch();
            (lines, batch)
        })
        .await?;
        lines = rest;
        let batch = batch.map_err(|error| unreadable(file, error))?;
        if batch.is_empty() {
            break;
        }
        for (number, line) in batch {
            plant_line(uplink, &mut plant, &line).await.map_err(|error| located(error, file, number))?;
        }
    }
    while let Some(node) = plant.rest() {
        store(uplink, &mut plant, node).await?;
    }
    plant.root().ok_or_else(|| {
        let why = format!("{} has no lines: a search tree has one key at least", file.display());
        Stop::new(Code::Usage, why).into()
    })
}

async fn plant_line(uplink: &mut Uplink<'_>, plant: &mut Plant, line: &[u8]) -> anyhow::Result<()> {
    let Some(tab) = line.iter().position(|byte| *byte == b'\t') else {
        return Err(Stop::new(Code::Usage, "no tab stands between a key and its value").into());
    };
    let (key, value) = (&line[..tab], &line[tab + 1..]);
    let value = uplink.blob(value.to_vec()).await?;
    plant.push(key, value).map_err(|wrong| refusal(wrong, key))?;
    while let Some(node) = plant.full() {
        store(uplink, plant, node).await?;
    }
    Ok(())
}

async fn store(uplink: &mut Uplink<'_>, plant: &mut Plant, mut node: Node) -> anyhow::Result<()> {
    let mut tree = TreeBuilder::with_capacity(1 + node.children.len());
    tree.push(uplink.blob(std::mem::take(&mut node.keys)).await?);
    for &child in &node.children {
        tree.push(child);
    }
    let handle = uplink.tree(&tree).await?;
    plant.stored(&node, handle);
    Ok(())
}

fn refusal(wrong: Wrong, key: &[u8]) -> Stop {
    const SHOWN_BYTES: usize = 100;
    let shown = String::from_utf8_lossy(&key[..key.len().min(SHOWN_BYTES)]).into_owned();
    match wrong {
        Wrong::TooLong => Stop::new(Code::Usage, format!("the key {shown:?}… has over {KEY_LEN_MAX} bytes")),
        Wrong::Repeated => Stop::new(Code::Usage, format!("the key {shown:?} is there twice")),
        Wrong::Unsorted => Stop::new(Code::Usage, format!("the key {shown:?} comes after a greater one"))
            .suggest("LC_ALL=C sort -t '\t' -k 1,1 FILE | sinew put --keys"),
    }
}

/// An error of a line, with its number.
fn located(error: anyhow::Error, file: &Path, number: u64) -> anyhow::Error {
    match error.downcast::<Stop>() {
        Ok(mut stop) if stop.code == Code::Usage => {
            stop.message = format!("{}, line {number}: {}", file.display(), stop.message);
            stop.into()
        }
        Ok(stop) => stop.into(),
        Err(error) => error,
    }
}

/// Lines with their numbers, many at a time.
struct Lines {
    reader: Box<dyn BufRead + Send>,
    number: u64,
}

impl Lines {
    fn batch(&mut self) -> io::Result<Vec<(u64, Vec<u8>)>> {
        let (mut batch, mut bytes) = (Vec::new(), 0);
        while bytes < BATCH_BYTES {
            let mut line = Vec::new();
            let read = io::Read::take(&mut self.reader, LINE_BYTES_MAX).read_until(b'\n', &mut line)?;
            if read == 0 {
                break;
            }
            self.number += 1;
            if line.last() == Some(&b'\n') {
                line.pop();
            } else if read as u64 == LINE_BYTES_MAX {
                let why = format!("line {} has over {LINE_BYTES_MAX} bytes", self.number);
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            bytes += read;
            batch.push((self.number, line));
        }
        Ok(batch)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn batch(text: &[u8]) -> io::Result<Vec<(u64, Vec<u8>)>> {
        Lines { reader: Box::new(io::Cursor::new(text.to_vec())), number: 0 }.batch()
    }

    #[test]
    fn lines_are_numbered_and_the_last_needs_no_end() {
        let lines = batch(b"a\t1\n\nb\t2").unwrap();
        assert_eq!(lines, [(1, b"a\t1".to_vec()), (2, Vec::new()), (3, b"b\t2".to_vec())]);
        assert!(batch(b"").unwrap().is_empty());
    }

    #[test]
    fn a_line_without_an_end_is_refused_and_not_held() {
        let error = batch(&vec![b'x'; (LINE_BYTES_MAX + 1) as usize]).unwrap_err();
        assert_eq!(error.to_string(), "line 1 has over 1048576 bytes");
        let longest = [vec![b'x'; (LINE_BYTES_MAX - 1) as usize], vec![b'\n']].concat();
        assert_eq!(batch(&longest).unwrap().len(), 1);
    }

    #[test]
    fn an_arity_is_a_number_that_makes_a_tree() {
        assert_eq!(parse_arity("256"), Ok(256));
        assert_eq!(parse_arity("1_048_576"), Ok(1 << 20));
        for wrong in ["1", "0", "", "x", "1048577", "-4"] {
            assert!(parse_arity(wrong).is_err(), "{wrong}");
        }
    }
}
