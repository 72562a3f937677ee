// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use std::collections::HashSet;

use objects::{Application, BundleReader, BundleRecord, Limits};

use super::*;

#[test]
fn the_codelet_is_its_source_assembled() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/src/commands/bench");
    let assembled = wat::parse_file(format!("{folder}/add.wat")).unwrap();
    if std::env::var_os("UPDATE_EXPECT").is_some() {
        std::fs::write(format!("{folder}/add.wasm"), &assembled).unwrap();
    } else {
        assert!(assembled == ADD_WASM, "run UPDATE_EXPECT=1 cargo test -p cli, and build again");
    }
}

#[test]
fn every_call_of_a_bundle_is_distinct_and_the_goal_asks_for_all() {
    let (first, second) = (additions(100, 1), additions(100, 1 << 40));
    let mut seen = HashSet::new();
    for bundle in [&first, &second] {
        let records: Vec<_> = BundleReader::new(bundle).unwrap().collect::<Result<_, _>>().unwrap();
        let trees: Vec<_> = records
            .iter()
            .filter_map(|record| match record {
                BundleRecord::Tree(tree) => Some(*tree),
                _ => None,
            })
            .collect();
        assert_eq!(trees.len(), 101);
        let (last, calls) = trees.split_last().unwrap();
        for call in calls {
            assert!(seen.insert(call.handle()), "a call twice");
            let application = Application::from_tree(*call).unwrap();
            assert_eq!(application.limits, Limits::default());
            assert_eq!(application.procedure, objects::Handle::blob(ADD_WASM));
        }
        let asked: Vec<_> = Application::from_tree(*last).unwrap().arguments().collect();
        assert!(
            asked
                .iter()
                .zip(calls)
                .all(|(entry, call)| *entry == call.handle().application().unwrap().strict().unwrap())
        );
        let Some(BundleRecord::Goal(goal)) = records.last() else { panic!("no goal") };
        assert_eq!(*goal, last.handle().application().unwrap());
    }
}

#[test]
fn medians() {
    let times = [5, 1, 9].map(Duration::from_nanos).to_vec();
    assert_eq!(median(times), Duration::from_nanos(5));
    assert_eq!(median(Vec::new()), Duration::ZERO);
}
