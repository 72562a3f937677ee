// SPDX-License-Identifier: Apache-2.0
//! Names with values, as a tree: what functions are set up with
//! (`docs/spec/functions.md`, section 2).

use std::collections::BTreeMap;
use std::ops::Deref;

use crate::{Error, Handle, TreeBuilder, TreeView};

/// Pairs of one tree, at most.
pub const PAIRS_MAX: usize = 256;
/// Bytes of a name, at most; at least one.
pub const PAIR_NAME_MAX: usize = 128;
/// Bytes of a value, at most.
pub const PAIR_VALUE_MAX: usize = 64 << 10;

/// Values by name. Names are UTF-8 and unique, and sorted by their bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pairs(BTreeMap<String, Vec<u8>>);

impl Pairs {
    /// Reads `name, value, name, value …`. `bytes` gives the data of a blob, or
    /// nothing if the handle is none or it is not here.
    ///
    /// # Errors
    /// [`Error::BadPairs`] for anything that [`Pairs::tree`] does not write.
    pub fn read<B: Deref<Target = [u8]>>(
        tree: TreeView<'_>,
        mut bytes: impl FnMut(Handle) -> Option<B>,
    ) -> Result<Self, Error> {
        if tree.len() % 2 == 1 || tree.len() > 2 * PAIRS_MAX {
            return Err(Error::BadPairs("the number of entries is odd, or over 512"));
        }
        let mut pairs = BTreeMap::new();
        let mut entries = tree.iter();
        while let (Some(name), Some(value)) = (entries.next(), entries.next()) {
            // Their handles tell how long they are, before anything is fetched.
            if name.size() > PAIR_NAME_MAX as u64 || value.size() > PAIR_VALUE_MAX as u64 {
                return Err(Error::BadPairs("a name or value is too long"));
            }
            let (Some(name), Some(value)) = (bytes(name), bytes(value)) else {
                return Err(Error::BadPairs("an entry is no blob, or not here"));
            };
            let Ok(name) = std::str::from_utf8(&name) else {
                return Err(Error::BadPairs("a name is not UTF-8"));
            };
            let is_next = pairs.last_key_value().is_none_or(|(last, _): (&String, _)| last.as_str() < name);
            if name.is_empty() || !is_next {
                return Err(Error::BadPairs("a name is empty, out of order or there twice"));
            }
            pairs.insert(name.to_owned(), value.to_vec());
        }
        Ok(Self(pairs))
    }

    /// Sets a value, in place of one that was there.
    ///
    /// # Errors
    /// [`Error::BadPairs`] over a limit.
    pub fn set(&mut self, name: &str, value: &[u8]) -> Result<(), Error> {
        if name.is_empty() || name.len() > PAIR_NAME_MAX || value.len() > PAIR_VALUE_MAX {
            return Err(Error::BadPairs("a name or value is empty or too long"));
        }
        if self.0.len() >= PAIRS_MAX && !self.0.contains_key(name) {
            return Err(Error::BadPairs("there are over 256 pairs"));
        }
        self.0.insert(name.to_owned(), value.to_owned());
        Ok(())
    }

    /// The value of a name.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(Vec::as_slice)
    }

    /// All of them, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.0.iter().map(|(name, value)| (name.as_str(), value.as_slice()))
    }

    /// The tree. Names and values that are no literals have to be stored
    /// beside it.
    pub fn tree(&self) -> TreeBuilder {
        self.iter().flat_map(|(name, value)| [Handle::blob(name.as_bytes()), Handle::blob(value)]).collect()
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    fn blobs(pairs: &Pairs) -> HashMap<Handle, Vec<u8>> {
        let names = pairs.iter().map(|(name, _)| name.as_bytes().to_vec());
        let values = pairs.iter().map(|(_, value)| value.to_vec());
        names.chain(values).map(|bytes| (Handle::blob(&bytes), bytes)).collect()
    }

    fn read(tree: &TreeBuilder, blobs: &HashMap<Handle, Vec<u8>>) -> Result<Pairs, Error> {
        Pairs::read(tree.view(), |handle| blobs.get(&handle).cloned())
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(map in proptest::collection::btree_map("[a-z.]{1,40}", proptest::collection::vec(any::<u8>(), 0..80), 0..20)) {
            let mut pairs = Pairs::default();
            for (name, value) in &map {
                pairs.set(name, value).unwrap();
            }
            prop_assert_eq!(read(&pairs.tree(), &blobs(&pairs)).unwrap(), pairs);
        }
    }

    #[test]
    fn only_one_form_is_accepted() {
        let literal = |text: &str| Handle::literal(text.as_bytes()).unwrap();
        let some = |entries: &[Handle]| {
            let tree: TreeBuilder = entries.iter().copied().collect();
            Pairs::read(tree.view(), |handle| handle.literal_bytes().map(<[u8]>::to_vec))
        };
        let (a, b, none) = (literal("a"), literal("b"), literal(""));
        assert!(some(&[]).is_ok() && some(&[a, none, b, none]).is_ok());
        let long = Handle::blob(&[7; PAIR_NAME_MAX + 1]);
        let not_text = Handle::literal(&[0xff]).unwrap();
        let missing = Handle::blob(&[7; 100]);
        let tree = TreeBuilder::new().view().handle();
        for wrong in [
            vec![a],
            vec![b, none, a, none],
            vec![a, none, a, none],
            vec![none, a],
            vec![long, a],
            vec![not_text, a],
            vec![a, missing],
            vec![a, tree],
            vec![a; 2 * PAIRS_MAX + 2],
        ] {
            assert!(matches!(some(&wrong), Err(Error::BadPairs(_))), "{wrong:?}");
        }
        let mut full = Pairs::default();
        for number in 0..PAIRS_MAX {
            full.set(&number.to_string(), b"").unwrap();
        }
        assert!(full.set("more", b"").is_err() && full.set("7", b"again").is_ok());
        assert!(full.set("", b"").is_err() && full.set("7", &[0; PAIR_VALUE_MAX + 1]).is_err());
    }
}
