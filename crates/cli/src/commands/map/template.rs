// SPDX-License-Identifier: Apache-2.0
//! Texts with places for a file's path: `{}` and its kin, as GNU parallel has them.

use std::fmt;
use std::str::FromStr;

/// What stands for `{` and `}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Braces {
    open: u8,
    close: u8,
}

impl FromStr for Braces {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.as_bytes() {
            &[open, close] if open != close && is_brace(open) && is_brace(close) => Ok(Self { open, close }),
            _ => Err("braces are two different characters, like '<>': then <> is the path".to_owned()),
        }
    }
}

impl fmt::Display for Braces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", char::from(self.open), char::from(self.close))
    }
}

fn is_brace(byte: u8) -> bool {
    byte.is_ascii_punctuation() && !matches!(byte, b'.' | b'/')
}

/// A part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    /// `{}`: the path
    Path,
    /// `{.}`: the path without its ending
    Stem,
    /// `{/}`: the name
    Name,
    /// `{//}`: the directory
    Parent,
    /// `{/.}`: the name without its ending
    NameStem,
}

impl Piece {
    fn of(inside: &[u8]) -> Option<Self> {
        Some(match inside {
            b"" => Self::Path,
            b"." => Self::Stem,
            b"/" => Self::Name,
            b"//" => Self::Parent,
            b"/." => Self::NameStem,
            _ => return None,
        })
    }
}

/// A text with places for a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Template(Vec<Piece>);

impl Template {
    /// Reads a text. What is in braces and no place for a path is text.
    pub(super) fn new(text: &[u8], braces: Braces) -> Self {
        let (mut pieces, mut plain, mut rest) = (Vec::new(), Vec::new(), text);
        while let [first, behind @ ..] = rest {
            let end = behind.iter().take(3).position(|byte| *byte == braces.close);
            let place =
                end.filter(|_| *first == braces.open).and_then(|end| Some((Piece::of(&behind[..end])?, end)));
            match place {
                Some((piece, end)) => {
                    if !plain.is_empty() {
                        pieces.push(Piece::Text(std::mem::take(&mut plain)));
                    }
                    pieces.push(piece);
                    rest = &behind[end + 1..];
                }
                None => {
                    plain.push(*first);
                    rest = behind;
                }
            }
        }
        if !plain.is_empty() {
            pieces.push(Piece::Text(plain));
        }
        Self(pieces)
    }

    /// Only the path.
    pub(super) fn path() -> Self {
        Self(vec![Piece::Path])
    }

    /// Whether it is another text for each path.
    pub(super) fn has_place(&self) -> bool {
        self.0.iter().any(|piece| !matches!(piece, Piece::Text(_)))
    }

    /// Whether it is the path and nothing else.
    pub(super) fn is_path(&self) -> bool {
        self.0 == [Piece::Path]
    }

    /// The text for a path.
    pub(super) fn fill(&self, path: &[u8]) -> Vec<u8> {
        let mut text = Vec::new();
        for piece in &self.0 {
            text.extend_from_slice(match piece {
                Piece::Text(plain) => plain,
                Piece::Path => path,
                Piece::Stem => &path[..path.len() - ending(path).len()],
                Piece::Name => name(path),
                Piece::Parent => parent(path),
                Piece::NameStem => {
                    let name = name(path);
                    &name[..name.len() - ending(name).len()]
                }
            });
        }
        text
    }
}

fn name(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or(path)
}

fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => b"/",
        Some(at) => &path[..at],
        None => b".",
    }
}

/// From the last dot on, which does not begin the name.
fn ending(path: &[u8]) -> &[u8] {
    let name = name(path);
    match name.iter().rposition(|byte| *byte == b'.') {
        None | Some(0) => b"",
        Some(at) => &name[at..],
    }
}

#[cfg(test)]
mod tests;
