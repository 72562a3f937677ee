// SPDX-License-Identifier: Apache-2.0
//! Bundles: what is written comes back, and damage is noticed.

#![allow(clippy::unwrap_used)]

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::TreeBuilder;
use crate::tests::strategies::{any_entries, any_handle, any_tree_bytes};
use crate::tests::vectors::list;
use crate::tests::vectors::{bytes, handle, string, vectors};

/// All records, or the error that a receiver refuses the bundle with.
fn read(content: &[u8]) -> Result<Vec<BundleRecord<'_>>, Error> {
    BundleReader::new(content)?.collect()
}

fn written(records: &[BundleRecord<'_>]) -> Vec<u8> {
    let mut writer = BundleWriter::new();
    for record in records {
        match record {
            BundleRecord::Blob(content) => drop(writer.blob(content)),
            BundleRecord::Tree(tree) => drop(writer.tree(*tree)),
            BundleRecord::Goal(goal) => return writer.goal(*goal),
        }
    }
    writer.finish()
}

/// Bytes that begin like a bundle and go on in some way.
fn any_bundle() -> impl Strategy<Value = Vec<u8>> {
    let length =
        prop_oneof![3 => Just(None), 1 => any::<u64>().prop_map(Some), 1 => (0..70u64).prop_map(Some)];
    let record = (0..5u8, any_tree_bytes(), length).prop_map(|(tag, payload, length)| {
        let length = length.unwrap_or(payload.len() as u64);
        [&[tag][..], &length.to_le_bytes(), &payload].concat()
    });
    let records = vec(record, 0..4).prop_map(|records| [&BUNDLE_MAGIC[..], &records.concat()].concat());
    prop_oneof![3 => records, 1 => vec(any::<u8>(), 0..100)]
}

#[test]
fn bundles_agree_with_the_vectors() {
    for vector in list(&vectors()["bundles"]["valid"]) {
        let content = bytes(&vector["bytes"]);
        let records = read(&content).unwrap_or_else(|error| panic!("{}: {error}", vector["name"]));
        let expected = vector["records"].as_array().unwrap();
        assert_eq!(records.len(), expected.len(), "{}", vector["name"]);
        for (record, expected) in records.iter().zip(expected) {
            let payload = bytes(&expected["payload"]);
            let (word, actual, named) = match record {
                BundleRecord::Blob(content) => ("blob", *content, Handle::blob(content)),
                BundleRecord::Tree(tree) => ("tree", tree.as_bytes(), tree.handle()),
                BundleRecord::Goal(goal) => ("goal", &goal.as_bytes()[..], *goal),
            };
            assert_eq!(word, string(&expected["record"]), "{}", vector["name"]);
            assert_eq!(actual, payload, "{}", vector["name"]);
            assert_eq!(named, handle(&expected["handle"]), "{}", vector["name"]);
        }
        let has_literals =
            records.iter().any(|record| matches!(record, BundleRecord::Blob(b) if b.len() <= 30));
        assert_eq!(written(&records) == content, !has_literals, "{}", vector["name"]);
    }
}

#[test]
fn other_bytes_are_refused() {
    for vector in list(&vectors()["bundles"]["invalid"]) {
        assert!(read(&bytes(&vector["bytes"])).is_err(), "{}", vector["why"]);
    }
}

#[test]
fn a_reader_stops_at_the_first_error() {
    let broken =
        [&BUNDLE_MAGIC[..], &[TAG_TREE, 1, 0, 0, 0, 0, 0, 0, 0, 7], &[TAG_BLOB; HEADER_LEN]].concat();
    let mut reader = BundleReader::new(&broken).unwrap();
    assert!(reader.next().unwrap().is_err());
    assert!(reader.next().is_none());
}

#[test]
fn a_literal_gets_no_record() {
    let mut writer = BundleWriter::new();
    assert_eq!(writer.blob(b"short"), Handle::blob(b"short"));
    assert_eq!(writer.finish(), BUNDLE_MAGIC);
}

proptest! {
    #[test]
    fn what_is_written_comes_back(
        blobs in vec(vec(any::<u8>(), 31..80), 0..4), trees in vec(any_entries(), 0..4), goal in any_handle(),
    ) {
        let trees: Vec<TreeBuilder> = trees.into_iter().map(|entries| entries.into_iter().collect()).collect();
        let mut records: Vec<_> = blobs.iter().map(|content| BundleRecord::Blob(content)).collect();
        records.extend(trees.iter().map(|tree| BundleRecord::Tree(tree.view())));
        let without_goal = written(&records);
        prop_assert_eq!(read(&without_goal), Ok(records.clone()));
        records.push(BundleRecord::Goal(goal));
        let with_goal = written(&records);
        prop_assert_eq!(read(&with_goal), Ok(records));
    }

    #[test]
    fn arbitrary_bytes_never_panic_and_bundles_are_canonical(content in any_bundle()) {
        if let Ok(records) = read(&content) {
            let needs_no_record = |record: &BundleRecord<'_>| matches!(record, BundleRecord::Blob(b) if b.len() <= 30);
            if !records.iter().any(needs_no_record) {
                prop_assert_eq!(written(&records), content);
            }
        }
    }

    #[test]
    fn every_shorter_bundle_is_refused_or_ends_between_records(blob in vec(any::<u8>(), 31..50), cut in 0..100usize) {
        let mut writer = BundleWriter::new();
        writer.blob(&blob);
        let content = writer.goal(Handle::blob(b"goal"));
        let cut = cut.min(content.len());
        let between = [BUNDLE_MAGIC.len(), BUNDLE_MAGIC.len() + HEADER_LEN + blob.len(), content.len()];
        prop_assert_eq!(read(&content[..cut]).is_ok(), between.contains(&cut));
    }
}
