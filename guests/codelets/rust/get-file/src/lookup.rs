// SPDX-License-Identifier: Apache-2.0
//! Finding a name among a directory's lines, which come in pieces.

/// Where a name stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The line, from 0.
    pub(crate) line: u64,
    /// Its kind is `d`.
    pub(crate) is_directory: bool,
}

/// A search that is fed with the pieces of an info blob.
#[derive(Debug)]
pub(crate) struct Lookup<'n> {
    name: &'n [u8],
    line: u64,
    /// Position in the line.
    column: usize,
    kind: u8,
    is_match: bool,
}

/// Columns of the kind and the space.
const NAME_START: usize = 2;

impl<'n> Lookup<'n> {
    pub(crate) fn new(name: &'n [u8]) -> Self {
        Self { name, line: 0, column: 0, kind: 0, is_match: true }
    }

    /// Looks through the next piece. A last line without line feed is not a line.
    pub(crate) fn feed(&mut self, piece: &[u8]) -> Option<Found> {
        for &byte in piece {
            if byte == b'\n' {
                if self.is_match && self.column == NAME_START + self.name.len() {
                    return Some(Found { line: self.line, is_directory: self.kind == b'd' });
                }
                self.line += 1;
                self.column = 0;
                self.is_match = true;
                continue;
            }
            match self.column {
                0 => self.kind = byte,
                1 => self.is_match &= byte == b' ',
                _ => self.is_match &= self.name.get(self.column - NAME_START) == Some(&byte),
            }
            self.column += 1;
        }
        None
    }
}

/// The first name in a path, and the path that remains; slashes in front of
/// either are dropped.
pub(crate) fn first_component(path: &[u8]) -> (&[u8], &[u8]) {
    let path = without_slashes(path);
    let end = path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
    let (name, rest) = path.split_at(end);
    (name, without_slashes(rest))
}

fn without_slashes(mut path: &[u8]) -> &[u8] {
    while let [b'/', rest @ ..] = path {
        path = rest;
    }
    path
}

#[cfg(test)]
mod tests;
