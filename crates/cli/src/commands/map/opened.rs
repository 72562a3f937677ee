// SPDX-License-Identifier: Apache-2.0
//! Which directories a program has in its application, and in which order.
//!
//! One that goes on from a snapshot has to have those that were open when that was taken
//! (`docs/spec/programs.md`, section 7), so that they are read from it.

use objects::Handle;

use crate::exit::{Code, Stop};
use crate::node_api::Node;

/// What a snapshot begins with.
const MARK: &[u8] = b"sinew:snapshot/1";
/// Where its state is among its entries.
const STATE: u64 = 2;
/// The longest state that is looked at: a directory's path has up to a MiB, and there are up to 64.
const STATE_BYTES_MAX: u64 = 80 << 20;
/// What the state has before its directories: four numbers, of which the last one is that of the globals.
const NUMBERS: usize = 4;
const GLOBAL_BYTES: usize = 17;

/// A directory as a program has it open.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Opened {
    pub(super) path: Vec<u8>,
    pub(super) is_read_only: bool,
}

impl Opened {
    pub(super) fn new(path: &str, is_read_only: bool) -> Self {
        Self { path: path.as_bytes().to_vec(), is_read_only }
    }

    /// As it would be written after `--dir`.
    fn written(&self) -> String {
        let ending = if self.is_read_only { ":ro" } else { "" };
        format!("{}{ending}", String::from_utf8_lossy(&self.path))
    }
}

/// The directories that a program had open when its snapshot was taken.
pub(super) async fn of_snapshot(snapshot: Handle, node: &mut Node) -> anyhow::Result<Vec<Opened>> {
    let not_one = || {
        let stop = Stop::new(Code::Usage, format!("{snapshot} is no snapshot"));
        stop.suggest("`sinew run PROGRAM --entry NAME --snapshot LABEL` takes one")
    };
    if !snapshot.is_value() || !snapshot.names_tree() {
        return Err(not_one().into());
    }
    let entries = node.entries(snapshot, 0, STATE + 1).await?;
    let [mark, _, state] = entries[..] else { return Err(not_one().into()) };
    if mark.literal_bytes() != Some(MARK) || state.names_tree() || state.size() > STATE_BYTES_MAX {
        return Err(not_one().into());
    }
    let state = node.read_whole(state, usize::try_from(state.size())?).await?;
    Ok(decode(&state).ok_or_else(not_one)?)
}

/// The directories in a snapshot's state.
fn decode(state: &[u8]) -> Option<Vec<Opened>> {
    let (numbers, rest) = state.split_at_checked(8 * NUMBERS)?;
    let globals = usize::try_from(u64::from_le_bytes(*numbers.last_chunk()?)).ok()?;
    let (_, mut rest) = rest.split_at_checked(globals.checked_mul(GLOBAL_BYTES)?)?;
    let mut opened = Vec::new();
    while let Some((&[is_read_only, ref len @ ..], after)) = rest.split_first_chunk::<5>() {
        let (path, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*len)).ok()?)?;
        opened.push(Opened { path: path.to_vec(), is_read_only: is_read_only == 1 });
        rest = after;
    }
    rest.is_empty().then_some(opened)
}

/// Something that an application has a directory for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    /// The mapped file, and those that all share.
    Files,
    /// What is made.
    Out,
    /// The one of that number among those that all share.
    Shared(usize),
}

/// The order of the directories: as a snapshot wants them, or else the files, those that all share, and what is
/// made.
pub(super) fn order(
    snapshot: Option<&[Opened]>,
    files: &Opened,
    out: &Opened,
    shared: &[Opened],
) -> Result<Vec<Place>, Stop> {
    let all = std::iter::once((files, Place::Files))
        .chain(shared.iter().enumerate().map(|(at, one)| (one, Place::Shared(at))))
        .chain([(out, Place::Out)]);
    let all: Vec<(&Opened, Place)> = all.collect();
    let Some(snapshot) = snapshot else { return Ok(all.into_iter().map(|(_, place)| place).collect()) };
    let place = |wanted: &Opened| {
        all.iter().find(|(one, _)| *one == wanted).map(|&(_, place)| place).ok_or_else(|| {
            let message = format!("the snapshot goes on with a directory at {}", wanted.written());
            Stop::new(Code::Usage, message).suggest(format!("--dir DIR={}", wanted.written()))
        })
    };
    let order = snapshot.iter().map(place).collect::<Result<Vec<_>, _>>()?;
    let missed = shared.iter().enumerate().find(|(at, _)| !order.contains(&Place::Shared(*at)));
    if let Some((_, missed)) = missed {
        let message = format!("the snapshot goes on without a directory at {}", missed.written());
        return Err(Stop::new(Code::Usage, message).suggest("take one with it, or leave it out here"));
    }
    Ok(order)
}

/// Where among a result's directories is what was made, if it is there.
pub(super) fn place_of_out(order: &[Place], shared: &[Opened]) -> Option<usize> {
    let is_written = |place: &&Place| match place {
        Place::Files => false,
        Place::Out => true,
        Place::Shared(at) => !shared[*at].is_read_only,
    };
    order.iter().filter(is_written).position(|place| *place == Place::Out)
}

#[cfg(test)]
mod tests;
