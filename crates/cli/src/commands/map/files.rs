// SPDX-License-Identifier: Apache-2.0
//! Which files are meant: patterns as shells know them, expanded by us, so that a million
//! files fit where a command line has an end.
//!
//! `*`, `?` and `[a-z]` match within a name, `**` any number of directories. As in shells what begins
//! with a dot is only matched by what does too, and `**` follows no link.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use crate::directory::{list, unreadable};
use crate::exit::{Code, Stop};
use crate::manifest::matches_name;

/// Files, at most.
const FILES_MAX: usize = 1_000_000;

/// What stands between two slashes of a pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    /// `**`
    Any,
    /// With `*`, `?` or `[`
    Name(Vec<char>),
    Literal(OsString),
}

impl Part {
    fn new(text: &[u8]) -> Self {
        match text {
            b"**" => Self::Any,
            text if is_pattern(text) => Self::Name(String::from_utf8_lossy(text).chars().collect()),
            text => Self::Literal(OsStr::from_bytes(text).to_owned()),
        }
    }

    fn matches(&self, name: &OsStr) -> bool {
        let is_hidden = name.as_bytes().starts_with(b".");
        match self {
            Self::Any => !is_hidden,
            Self::Name(pattern) => {
                let name: Vec<char> = name.to_string_lossy().chars().collect();
                (!is_hidden || pattern.first() == Some(&'.')) && matches_name(pattern, &name)
            }
            Self::Literal(literal) => literal == name,
        }
    }
}

fn is_pattern(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

/// Files in the order in which they were named, none twice.
#[derive(Debug, Default)]
pub(super) struct Files {
    list: Vec<PathBuf>,
    seen: HashSet<PathBuf>,
}

impl Files {
    /// Adds what patterns mean: of each one the files in the order of their names.
    pub(super) fn expand(&mut self, patterns: &[OsString]) -> anyhow::Result<()> {
        for pattern in patterns {
            let mut found = match literal(pattern)? {
                Some(file) => vec![file],
                None => walk(pattern)?,
            };
            if found.is_empty() {
                let message = format!("no file matches {}", pattern.to_string_lossy());
                let advice = "patterns are looked up from where the command runs, and quoted: 'src/**/*.c'";
                return Err(Stop::new(Code::NotFound, message).suggest(advice).into());
            }
            found.sort_unstable_by(|one, other| one.as_os_str().as_bytes().cmp(other.as_os_str().as_bytes()));
            for file in found {
                self.add(file)?;
            }
        }
        Ok(())
    }

    /// Adds the paths of a list, one a line. None of them is a pattern.
    pub(super) fn listed(&mut self, list: &[u8]) -> anyhow::Result<()> {
        for line in list.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            let path = Path::new(OsStr::from_bytes(line));
            let there = std::fs::metadata(path).map_err(|error| unreadable(path, error))?;
            if !there.is_file() {
                let stop = Stop::new(Code::Usage, format!("{} is no file", path.display()));
                return Err(stop.suggest("the list has a file's path in each line").into());
            }
            self.add(normal(path)?)?;
        }
        Ok(())
    }

    /// Takes out what patterns mean, which may be nothing.
    pub(super) fn exclude(&mut self, patterns: &[OsString]) -> anyhow::Result<()> {
        let mut excluded = HashSet::new();
        for pattern in patterns {
            match is_pattern(pattern.as_bytes()) {
                true => excluded.extend(walk(pattern)?),
                false => _ = excluded.insert(normal(Path::new(pattern))?),
            }
        }
        self.list.retain(|file| !excluded.contains(file));
        Ok(())
    }

    fn add(&mut self, file: PathBuf) -> anyhow::Result<()> {
        if file.as_os_str().as_bytes().contains(&b'\n') {
            let stop = Stop::new(Code::Failed, format!("the name of {file:?} contains a line break"));
            return Err(stop.suggest("rename it").into());
        }
        if self.seen.insert(file.clone()) {
            self.list.push(file);
        }
        if self.list.len() > FILES_MAX {
            let stop = Stop::new(Code::Usage, format!("these are more than {FILES_MAX} files"));
            return Err(stop.suggest("map parts of them").into());
        }
        Ok(())
    }

    pub(super) fn into_list(self) -> Vec<PathBuf> {
        self.list
    }
}

/// The file of this very name, if it is none of a pattern, or there is one.
fn literal(pattern: &OsStr) -> anyhow::Result<Option<PathBuf>> {
    let path = Path::new(pattern);
    match std::fs::metadata(path) {
        Ok(there) if there.is_file() => Ok(Some(normal(path)?)),
        Ok(there) if there.is_dir() => {
            let stop = Stop::new(Code::Usage, format!("{} is a directory", path.display()));
            Err(stop.suggest(format!("'{}/**' means all files in it", path.display())).into())
        }
        _ if is_pattern(pattern.as_bytes()) => Ok(None),
        Ok(_) => {
            let stop = Stop::new(Code::Usage, format!("{} is no file", path.display()));
            Err(stop.suggest("what a pipe has to say is put first: `sinew put`").into())
        }
        Err(error) => Err(unreadable(path, error)),
    }
}

/// A path without what says nothing. What leads out of where we are becomes absolute: a program has
/// no directory above its first.
pub(super) fn normal(path: &Path) -> anyhow::Result<PathBuf> {
    use std::path::Component;
    let mut parts: Vec<&OsStr> = Vec::new();
    for part in path.components() {
        match part {
            Component::Normal(name) => parts.push(name),
            Component::ParentDir if parts.pop().is_none() && !path.is_absolute() => {
                return normal(&std::env::current_dir()?.join(path));
            }
            Component::ParentDir | Component::CurDir | Component::RootDir | Component::Prefix(_) => {}
        }
    }
    let relative: PathBuf = parts.into_iter().collect();
    Ok(if path.is_absolute() { Path::new("/").join(relative) } else { relative })
}

/// A directory that is still to be looked at, and how far in the pattern it can be.
struct Waiting {
    path: PathBuf,
    /// For each part whether it may match what is in the directory; the last stands for the pattern's end.
    at: Vec<bool>,
}

fn walk(pattern: &OsStr) -> anyhow::Result<Vec<PathBuf>> {
    let bytes = pattern.as_bytes();
    let parts: Vec<&[u8]> = bytes.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).collect();
    let first = parts.iter().position(|part| is_pattern(part)).unwrap_or(parts.len());
    let mut root = PathBuf::from(if bytes.starts_with(b"/") { "/" } else { "" });
    root.extend(parts[..first].iter().map(|part| OsStr::from_bytes(part)));
    let root = normal(&root)?;
    if let Some(part) = parts[first..].iter().find(|part| matches!(**part, b".." | b".")) {
        let part = String::from_utf8_lossy(part);
        let message = format!("{} has {part} behind a wildcard", pattern.to_string_lossy());
        return Err(Stop::new(Code::Usage, message).suggest("'src/**/*.c' and '../src/*.c' are fine").into());
    }
    let parts: Vec<Part> = parts[first..].iter().map(|part| Part::new(part)).collect();
    let mut begin = vec![false; parts.len() + 1];
    begin[0] = true;
    let mut found = Vec::new();
    if !std::fs::metadata(looked_at(&root)).is_ok_and(|there| there.is_dir()) {
        return Ok(found);
    }
    let mut waiting = vec![Waiting { path: root, at: closed(&parts, begin) }];
    while let Some(Waiting { path, at }) = waiting.pop() {
        for name in list(looked_at(&path))? {
            let next = step(&parts, &at, &name);
            if !next.contains(&true) {
                continue;
            }
            let child = path.join(&name);
            let Ok(own) = std::fs::symlink_metadata(&child) else { continue };
            // A link's target; a broken link has none.
            let Ok(there) = std::fs::metadata(&child) else { continue };
            if there.is_file() && next[parts.len()] {
                found.push(child);
                if found.len() > FILES_MAX {
                    break;
                }
            } else if there.is_dir() {
                let mut next = next;
                if own.is_symlink() {
                    next = not_by_any(&parts, &at, &name);
                }
                if next[..parts.len()].contains(&true) {
                    waiting.push(Waiting { path: child, at: next });
                }
            }
        }
    }
    Ok(found)
}

fn looked_at(path: &Path) -> &Path {
    if path.as_os_str().is_empty() { Path::new(".") } else { path }
}

/// Where in the pattern one is behind a name.
fn step(parts: &[Part], at: &[bool], name: &OsStr) -> Vec<bool> {
    let mut next = not_by_any(parts, at, name);
    for (place, part) in parts.iter().enumerate() {
        next[place] |= at[place] && *part == Part::Any && part.matches(name);
    }
    closed(parts, next)
}

/// The same for a link to a directory, which `**` does not follow.
fn not_by_any(parts: &[Part], at: &[bool], name: &OsStr) -> Vec<bool> {
    let mut next = vec![false; parts.len() + 1];
    for (place, part) in parts.iter().enumerate() {
        next[place + 1] |= at[place] && *part != Part::Any && part.matches(name);
    }
    closed(parts, next)
}

/// `**` may stand for no directory at all.
fn closed(parts: &[Part], mut at: Vec<bool>) -> Vec<bool> {
    for (place, part) in parts.iter().enumerate() {
        at[place + 1] |= at[place] && *part == Part::Any;
    }
    at
}

#[cfg(test)]
mod tests;
