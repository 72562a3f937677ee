// SPDX-License-Identifier: Apache-2.0
//! The files of a directory that is a tree `[names, child…]`, and the URLs that they get.

use std::collections::HashSet;
use std::fmt::Write as _;

use gateway::ExportError;
use objects::Handle;
use store::Object;

/// Files of one export.
const FILES_MAX: usize = 100_000;
/// Directories within each other. Keys have 1024 bytes, so that more would not fit.
const LEVELS_MAX: usize = 512;

/// A blob, and where it goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct File {
    pub(super) url: String,
    pub(super) handle: Handle,
}

/// All files below `root`, whose URL is the one that they begin with.
pub(super) fn files(
    root: Handle,
    url: &str,
    mut read: impl FnMut(Handle) -> Result<Object, ExportError>,
) -> Result<Vec<File>, ExportError> {
    let mut files = Vec::new();
    let mut folders = vec![(root, url.trim_end_matches('/').to_owned(), 0)];
    while let Some((folder, url, level)) = folders.pop() {
        let object = read(folder)?;
        let entries = object.as_tree();
        let no_directory = || {
            let why = "is a tree, and no directory: its first entry does not name the others";
            ExportError::Refused(format!("{folder} {why}"))
        };
        let names = entries
            .get(0)
            .filter(|names| names.is_object() && !names.names_tree())
            .ok_or_else(no_directory)?;
        let names = match names.literal_bytes() {
            Some(names) => names.to_vec(),
            None => read(names)?.to_vec(),
        };
        let children = children(&names).filter(|children| children.len() + 1 == entries.len());
        for (&(kind, name), child) in children.ok_or_else(no_directory)?.iter().zip(entries.iter().skip(1)) {
            let url = format!("{url}/{}", encoded(name));
            match kind {
                b'd' if child.names_tree() && child.is_object() && level < LEVELS_MAX => {
                    folders.push((child, url, level + 1));
                }
                b'f' | b'x' if !child.names_tree() && child.is_object() => {
                    files.push(File { url, handle: child })
                }
                // A bucket has no links.
                b'l' => {}
                _ => {
                    let why = format!("{url} is neither a file nor a directory that is complete");
                    return Err(ExportError::Refused(why));
                }
            }
            if files.len() + folders.len() > FILES_MAX {
                return Err(ExportError::Refused(format!("{root} has more than {FILES_MAX} files")));
            }
        }
    }
    // In the order of their keys.
    files.sort_unstable_by(|a, b| a.url.cmp(&b.url));
    Ok(files)
}

/// Those of them with these contents. If none has, what was missing before was a directory's
/// names, without which nothing could be listed, and all are meant.
pub(super) fn chosen(mut files: Vec<File>, only: &HashSet<Handle>) -> Vec<File> {
    if files.iter().any(|file| only.contains(&file.handle)) {
        files.retain(|file| only.contains(&file.handle));
    }
    files
}

/// Kinds and names of a directory's children.
fn children(names: &[u8]) -> Option<Vec<(u8, &[u8])>> {
    let lines = names.split_inclusive(|byte| *byte == b'\n');
    let child = |line: &'_ [u8]| -> Option<(u8, usize)> {
        let [kind, b' ', name @ .., b'\n'] = line else { return None };
        let is_name = !name.is_empty() && name != b"." && name != b".." && !name.contains(&b'/');
        is_name.then_some((*kind, name.len()))
    };
    lines.map(|line| child(line).map(|(kind, len)| (kind, &line[2..2 + len]))).collect()
}

/// A name as it stands in a URL.
fn encoded(name: &[u8]) -> String {
    let mut text = String::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte))
            }
            _ => _ = write!(text, "%{byte:02X}"),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use objects::TreeBuilder;
    use store::Store;

    use super::*;

    fn store() -> Store {
        Store::open(store::Options { home: None, memory_bytes: 1 << 20, relations_bytes: 1 << 16 }).unwrap()
    }

    fn tree(store: &Store, names: &str, children: &[Handle]) -> Handle {
        let names = store.keep_blob(names.as_bytes());
        let entries: TreeBuilder = [names].into_iter().chain(children.iter().copied()).collect();
        store.keep_tree(entries.view())
    }

    fn list(store: &Store, root: Handle) -> Result<Vec<File>, ExportError> {
        files(root, "s3://data/out/", |handle| {
            store.get(handle).map_err(ExportError::Store)?.ok_or(ExportError::missing(handle))
        })
    }

    #[test]
    fn files_have_the_urls_of_their_paths() {
        let store = store();
        let [a, b, c] = [1, 2, 3].map(Handle::u64);
        let inner = tree(&store, "f b c?\nx run\n", &[b, c]);
        let empty = tree(&store, "", &[]);
        let root = tree(&store, "f a.csv\nd sub\nl link\nd void\n", &[a, inner, a, empty]);
        let file = |url: &str, handle| File { url: url.to_owned(), handle };
        let expected = [
            file("s3://data/out/a.csv", a),
            file("s3://data/out/sub/b%20c%3F", b),
            file("s3://data/out/sub/run", c),
        ];
        assert_eq!(list(&store, root).unwrap(), expected);
    }

    #[test]
    fn after_names_were_missing_all_files_are_meant() {
        let files =
            || [1, 2].map(|number| File { url: number.to_string(), handle: Handle::u64(number) }).to_vec();
        let some =
            |handles: &[u64]| chosen(files(), &handles.iter().map(|number| Handle::u64(*number)).collect());
        assert_eq!(some(&[]), files());
        assert_eq!(some(&[2]), files()[1..]);
        assert_eq!(some(&[3]), files(), "it is no file's");
    }

    #[test]
    fn what_is_no_directory_is_refused() {
        let store = store();
        let one = Handle::u64(1);
        for (names, children) in [
            ("f a\n", &[][..]),
            ("f a\nf b\n", &[one]),
            ("f a", &[one]),
            ("f \n", &[one]),
            ("fa\n", &[one]),
            ("f ..\n", &[one]),
            ("f a/b\n", &[one]),
            ("q a\n", &[one]),
            ("d a\n", &[one]),
        ] {
            let root = tree(&store, names, children);
            assert!(matches!(list(&store, root), Err(ExportError::Refused(_))), "{names:?}");
        }
        let nothing: TreeBuilder = [].into_iter().collect();
        let nothing = store.keep_tree(nothing.view());
        assert!(matches!(list(&store, nothing), Err(ExportError::Refused(_))));
        let gone: TreeBuilder = [one, one].into_iter().collect();
        let gone = gone.view().handle();
        let root = tree(&store, "d a\n", &[gone]);
        assert!(matches!(list(&store, root), Err(ExportError::Missing { missing, .. }) if missing == [gone]));
        // A directory that is only named is not there.
        let root = tree(&store, "d a\n", &[gone.lowered().unwrap()]);
        assert!(matches!(list(&store, root), Err(ExportError::Refused(_))));
    }
}
