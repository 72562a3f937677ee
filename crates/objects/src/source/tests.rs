// SPDX-License-Identifier: Apache-2.0
//! Sources there and back, and what is none.
#![allow(clippy::unwrap_used)]

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;
use crate::TreeView;

fn read(tree: TreeView<'_>, blobs: &[Vec<u8>]) -> Result<Source, Error> {
    let known: HashMap<Handle, &Vec<u8>> = blobs.iter().map(|blob| (Handle::blob(blob), blob)).collect();
    let application = Application::from_tree(tree).unwrap();
    assert!(Source::is_fetched_by(application.procedure));
    Source::of_application(&application, |blob| match blob.literal_bytes() {
        Some(bytes) => Some(bytes.to_vec()),
        None => known.get(&blob).map(|bytes| bytes.to_vec()),
    })
}

fn source(validator: Validator) -> Source {
    Source { urls: vec!["https://example.com/data".to_owned()], size: None, validator }
}

#[test]
fn what_is_written_is_read() {
    let blob = Handle::blob(&[1; 100]).lowered().unwrap();
    let validators = [
        Validator::None,
        Validator::Etag("\"a-1\"".to_owned()),
        Validator::Sha256([0xa5; 32]),
        Validator::Ref(blob),
    ];
    for validator in validators {
        for size in [None, Some(100)] {
            for more in [0, 7] {
                let mut source = Source { size, ..source(validator.clone()) };
                source.urls.extend((0..more).map(|number| format!("http://mirror{number}.example/x?y#z")));
                let (tree, blobs) = source.to_tree();
                assert_eq!(read(tree.view(), &blobs).unwrap(), source);
            }
        }
    }
}

#[test]
fn what_is_known_by_its_hash_or_by_tag_and_size_is_bound() {
    let blob = Handle::blob(&[1; 100]).lowered().unwrap();
    let etag = || source(Validator::Etag("\"1\"".to_owned()));
    assert!(source(Validator::Ref(blob)).is_bound() && source(Validator::Sha256([0; 32])).is_bound());
    assert!(!etag().is_bound() && Source { size: Some(5), ..etag() }.is_bound());
    assert!(!Source { size: Some(5), ..source(Validator::None) }.is_bound());
    assert_eq!(source(Validator::Ref(blob)).len(), Some(100));
}

#[test]
fn what_breaks_a_rule_is_refused() {
    let long = format!("http://{}", "a".repeat(SOURCE_URL_MAX));
    for url in ["", "http://a b", "http://a\rb", "http://ä", &long] {
        let source = Source { urls: vec![url.to_owned()], ..source(Validator::None) };
        assert!(source.check().is_err(), "{url}");
        let (tree, blobs) = source.to_tree();
        assert!(read(tree.view(), &blobs).is_err(), "{url}");
    }
    let many = Source { urls: vec!["http://a".to_owned(); 9], ..source(Validator::None) };
    assert!(many.check().is_err());
    for etag in ["", "\"", "a", "W/\"a\"", "\"a\"b\"", "\"a b\"", "\"a\n\""] {
        let source = source(Validator::Etag(etag.to_owned()));
        assert!(source.check().is_err(), "{etag}");
        let (tree, blobs) = source.to_tree();
        assert!(read(tree.view(), &blobs).is_err(), "{etag}");
    }
    let blob = Handle::blob(&[1; 100]);
    assert!(source(Validator::Ref(blob)).check().is_err(), "an object would be an input");
    let other = Source { size: Some(99), ..source(Validator::Ref(blob.lowered().unwrap())) };
    assert!(other.check().is_err());
}

#[test]
fn other_arguments_are_no_source() {
    let (tree, blobs) = source(Validator::None).to_tree();
    let right: Vec<Handle> = tree.view().iter().collect();
    let with = |index: usize, entry: Handle| {
        let mut entries = right.clone();
        entries[index] = entry;
        read(entries.into_iter().collect::<TreeBuilder>().view(), &blobs)
    };
    assert!(with(2, Handle::blob(b"http://a.example")).is_ok());
    let tree_handle = tree.view().handle();
    for (index, entry) in [
        (2, Handle::blob(b"\xff")),
        (2, Handle::blob(&[b'a'; 100])),
        (2, tree_handle),
        (3, Handle::blob(b"1234")),
        (3, Handle::blob(&[0; 40])),
        (4, Handle::blob(b"md5 00")),
        (4, Handle::blob(b"sha256 00")),
        (4, Handle::blob(&[0; 40])),
        (4, tree_handle),
        (4, tree_handle.application().unwrap()),
    ] {
        assert!(with(index, entry).is_err(), "{index}: {entry}");
    }
    for len in [2, 3, 4] {
        let tree: TreeBuilder = right[..len].iter().copied().collect();
        assert!(read(tree.view(), &blobs).is_err(), "{len} entries");
    }
    let longer: TreeBuilder = right.iter().copied().chain([Handle::u64(1)]).collect();
    assert!(read(longer.view(), &blobs).is_err());
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(urls: Vec<u8>, size: Vec<u8>, validator: Vec<u8>) {
        let blobs = [urls, size, validator];
        let head = [Handle::blob(b""), Handle::blob(FETCH_PROCEDURE)];
        let arguments = blobs.iter().map(|blob| Handle::blob(blob));
        let tree: TreeBuilder = head.into_iter().chain(arguments).collect();
        if let Ok(source) = read(tree.view(), &blobs) {
            let (again, _) = source.to_tree();
            prop_assert_eq!(again.view().handle(), tree.view().handle());
        }
    }
}
