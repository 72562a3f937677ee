// SPDX-License-Identifier: Apache-2.0
//! The size of an application's inputs: what their cost is reckoned from.

use std::collections::HashSet;
use std::ops::Deref;

use crate::handle::Handle;
use crate::tree::TreeView;

/// Entries of an application up to which one is compared with all others.
const FEW: usize = 16;

/// Whether bytes of the entry lie anywhere: it can be read, and is not in its own handle.
#[inline]
fn is_stored(entry: Handle) -> bool {
    entry.is_object() && entry.literal_bytes().is_none()
}

/// Bytes of the inputs of an application, each of its entries once; `below` tells the bytes
/// of a tree with all in it, as [`repository_bytes`] does.
///
/// # Errors
/// What `below` ends with.
pub fn inputs_bytes<E>(
    application: TreeView<'_>,
    mut below: impl FnMut(Handle) -> Result<u64, E>,
) -> Result<u64, E> {
    let mut seen = HashSet::new();
    let mut bytes = 0_u64;
    for (at, entry) in application.iter().enumerate().filter(|(_, entry)| is_stored(*entry)) {
        let is_new = match application.len() {
            ..=FEW => !application.iter().take(at).any(|before| before == entry),
            _ => seen.insert(entry),
        };
        if is_new {
            bytes = bytes.saturating_add(if entry.names_tree() { below(entry)? } else { entry.size() });
        }
    }
    Ok(bytes)
}

/// Bytes of an object and of all in it that can be read, each once. `look` is asked for each
/// of them, and gives what a tree holds; nothing for a blob, or where there is no need to go on.
///
/// # Errors
/// What `look` ends with.
pub fn repository_bytes<D: Deref<Target = [u8]>, E>(
    entry: Handle,
    mut look: impl FnMut(Handle) -> Result<Option<D>, E>,
) -> Result<u64, E> {
    let (mut seen, mut pending, mut bytes) = (HashSet::new(), vec![entry.plain_tree()], 0_u64);
    while let Some(object) = pending.pop() {
        if !seen.insert(object) {
            continue;
        }
        let unit = if object.names_tree() { Handle::LEN as u64 } else { 1 };
        bytes = bytes.saturating_add(object.size().saturating_mul(unit));
        if let Some(tree) = look(object)? {
            let entries = TreeView::from_checked(&tree).iter().filter(|&entry| is_stored(entry));
            pending.extend(entries.map(Handle::plain_tree));
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::HashMap;
    use std::convert::Infallible;

    use super::*;
    use crate::tree::TreeBuilder;

    fn tree(entries: &[Handle], trees: &mut HashMap<Handle, Vec<u8>>) -> Handle {
        let mut builder = TreeBuilder::new();
        for &entry in entries {
            builder.push(entry);
        }
        let handle = builder.view().handle();
        trees.insert(handle, builder.view().as_bytes().to_vec());
        handle
    }

    #[test]
    fn each_object_counts_once_for_each_entry_that_it_is_in() {
        let (large, small) = (Handle::blob(&[7; 1000]), Handle::literal(b"abc").unwrap());
        let mut trees = HashMap::new();
        let inner = tree(&[large, small], &mut trees);
        // What is behind a thunk or a ref cannot be read.
        let outer = tree(&[inner, large, large.lowered().unwrap(), inner.application().unwrap()], &mut trees);
        let below = |entry| {
            repository_bytes(entry, |object| Ok::<_, Infallible>(trees.get(&object).cloned())).unwrap()
        };
        assert_eq!((below(large), below(inner)), (1000, 1064));
        assert_eq!(below(outer), 1000 + 64 + 4 * 32);
        for entries in [
            vec![small, large, large, inner, outer, inner],
            // More than are compared one by one.
            [vec![small, inner, outer], vec![large; FEW]].concat(),
        ] {
            let mut builder = TreeBuilder::new();
            for &entry in &entries {
                builder.push(entry);
            }
            let bytes = inputs_bytes(builder.view(), |entry| Ok::<_, Infallible>(below(entry))).unwrap();
            assert_eq!(bytes, 1000 + 1064 + 1192, "{} entries", entries.len());
        }
        assert_eq!(repository_bytes(inner, |_| Err::<Option<Vec<u8>>, _>("enough")), Err("enough"));
    }
}
