// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;
use crate::journal::tests::{all, record};

fn writer(directory: &Path, bytes_max: u64) -> Writer {
    Writer::new(ArchiveOptions { directory: directory.to_owned(), bytes_max }, "EUR".to_owned())
}

/// Of a request with this number.
fn numbered(sequence: u64, function: &str, log: &str) -> Arc<Record> {
    let record = Record { sequence, ..record(function, log) };
    Arc::new(Record { request_id: format!("id-{sequence}"), ..record })
}

fn numbers(found: &[Value]) -> Vec<u64> {
    found.iter().map(|record| record["sequence"].as_u64().unwrap()).collect()
}

fn disk_bytes(directory: &Path) -> u64 {
    let functions = names_in(directory).unwrap();
    let of = |function: &String| segments(&directory.join(function)).unwrap();
    functions.iter().flat_map(of).map(|(_, path)| path.metadata().unwrap().len()).sum()
}

#[test]
fn what_was_written_is_found_newest_first_whoever_wrote_it() {
    let directory = TempDir::new().unwrap();
    let root = directory.path().join("logs");
    assert_eq!(find(&root, &all(10), u64::MAX).unwrap(), [Value::Null; 0], "there is nothing yet");
    writer(&root, 1 << 20).write(&[numbered(1, "a", "one\n"), numbered(2, "b.step", "two\n")]).unwrap();
    // Another node, after the first one.
    let mut again = writer(&root, 1 << 20);
    again.write(&[numbered(3, "a", "three\n")]).unwrap();
    again.write(&[numbered(4, "b", "four\n"), numbered(5, "a", "")]).unwrap();
    let found = |wanted: &Wanted, before| numbers(&find(&root, wanted, before).unwrap());
    let of = |function: &str| Wanted { function: Some(function.to_owned()), ..all(10) };
    assert_eq!(found(&all(10), u64::MAX), [1, 2, 3, 4, 5]);
    assert_eq!(found(&all(2), u64::MAX), [4, 5]);
    assert_eq!(found(&all(2), 4), [2, 3]);
    assert_eq!(found(&Wanted { after: 2, ..all(10) }, 5), [3, 4]);
    assert_eq!(found(&of("a"), u64::MAX), [1, 3, 5]);
    assert_eq!(found(&of("b"), u64::MAX), [2, 4], "with its steps");
    assert_eq!(found(&of("b.step"), u64::MAX), [2]);
    assert_eq!(found(&Wanted { request_id: Some("id-3".to_owned()), ..all(1) }, u64::MAX), [3]);
    assert_eq!(found(&Wanted { text: Some("o".to_owned()), ..all(9) }, u64::MAX), [1, 2, 4]);
    assert_eq!(found(&Wanted { failed: true, ..all(9) }, u64::MAX), [0; 0]);
    let first = &find(&root, &all(10), u64::MAX).unwrap()[0];
    assert_eq!(
        (&first["log"], &first["currency"], &first["start"]),
        (&"one\n".into(), &"EUR".into(), &"warm".into())
    );
    assert_eq!(first["marks"][0][2], 1, "to standard output");
    let names = segments(&root.join("a")).unwrap();
    assert_eq!(names.len(), 1, "a node that is started again goes on with the segment that there is");
}

#[test]
fn nobody_else_of_the_machine_reads_them() {
    use std::os::unix::fs::PermissionsExt as _;
    let directory = TempDir::new().unwrap();
    let root = directory.path().join("logs");
    writer(&root, 1 << 20).write(&[numbered(1, "a", "x")]).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(&root), mode(&root.join("a"))), (0o700, 0o700));
    assert_eq!(mode(&segments(&root.join("a")).unwrap()[0].1), 0o600);
}

#[test]
fn names_that_are_no_functions_of_this_node_are_written_nowhere() {
    let directory = TempDir::new().unwrap();
    let root = directory.path().join("logs");
    let names = ["", ".", "..", "../out", "/etc", "a/b", ".step"];
    let records: Vec<_> = names.iter().map(|name| numbered(1, name, "x")).collect();
    writer(&root, 1 << 20).write(&records).unwrap();
    assert!(!root.exists() && names_in(directory.path()).unwrap().is_empty());
}

#[test]
fn what_is_over_the_limit_goes_and_none_by_what_another_one_prints() {
    const MOST: u64 = 256 << 10;
    let directory = TempDir::new().unwrap();
    let root = directory.path();
    let mut writer = writer(root, MOST);
    writer.write(&[numbered(1, "quiet", "once")]).unwrap();
    let line = "x".repeat(1000);
    for at in 0..1000 {
        writer.write(&[numbered(10 + at, "loud", &line)]).unwrap();
        assert!(disk_bytes(root) <= MOST, "after {at}");
    }
    let kept: u64 = writer.kept.as_ref().unwrap().values().map(|kept| kept.bytes).sum();
    assert_eq!(kept, disk_bytes(root), "what is counted is what there is");
    let found = numbers(&find(root, &all(1000), u64::MAX).unwrap());
    assert_eq!((found[0], *found.last().unwrap()), (1, 1009));
    assert!(found.len() > 100 && found[1..].windows(2).all(|pair| pair[1] == pair[0] + 1), "the newest");
    // One who finds more than is allowed removes that, too.
    let mut less = self::writer(root, MOST / 4);
    less.write(&[numbered(2000, "loud", "x")]).unwrap();
    assert!(disk_bytes(root) <= MOST / 4);
    assert_eq!(numbers(&find(root, &all(1), 2000).unwrap()).len(), 1);
}

#[test]
fn of_many_that_print_as_much_none_is_gone_whole() {
    const MOST: u64 = 1 << 20;
    let directory = TempDir::new().unwrap();
    let mut writer = writer(directory.path(), MOST);
    let (line, mut number) = ("x".repeat(1000), 0);
    for _ in 0..60 {
        let batch: Vec<Arc<Record>> = (0..40)
            .map(|function| {
                number += 1;
                numbered(number, &format!("f-{function}"), &line)
            })
            .collect();
        writer.write(&batch).unwrap();
        assert!(disk_bytes(directory.path()) <= MOST);
    }
    for function in 0..40 {
        let own = Wanted { function: Some(format!("f-{function}")), ..all(1) };
        let found = numbers(&find(directory.path(), &own, u64::MAX).unwrap());
        assert_eq!(found, [59 * 40 + function + 1], "its newest");
    }
}

#[test]
fn a_batch_that_is_longer_than_all_may_be_is_cut_into_segments() {
    const MOST: u64 = 1 << 20;
    let directory = TempDir::new().unwrap();
    let mut writer = writer(directory.path(), MOST);
    let line = "x".repeat(10_000);
    let batch: Vec<Arc<Record>> = (1..=400).map(|number| numbered(number, "a", &line)).collect();
    writer.write(&batch).unwrap();
    let (kept, most) = (disk_bytes(directory.path()), writer.segment_max() + 12_000);
    assert!(kept <= MOST && kept > MOST / 2, "{kept}");
    for (_, path) in segments(&directory.path().join("a")).unwrap() {
        assert!(path.metadata().unwrap().len() <= most);
    }
    let found = numbers(&find(directory.path(), &all(1000), u64::MAX).unwrap());
    assert_eq!(found.last(), Some(&400));
    assert!(found.windows(2).all(|pair| pair[1] == pair[0] + 1));
}

#[test]
fn what_others_put_beside_it_is_looked_past() {
    let directory = TempDir::new().unwrap();
    fs::create_dir(directory.path().join("lost+found")).unwrap();
    fs::write(directory.path().join("notes"), "of somebody").unwrap();
    fs::create_dir(directory.path().join("a")).unwrap();
    fs::write(directory.path().join("a/README"), "of somebody").unwrap();
    // What is in the way of one function is no other one's matter.
    fs::write(directory.path().join("b"), "in the way").unwrap();
    let mut writer = writer(directory.path(), 1 << 20);
    let batch = [numbered(1, "a", "x"), numbered(2, "b", "x"), numbered(3, "c", "x")];
    assert!(writer.write(&batch).is_err());
    assert_eq!(numbers(&find(directory.path(), &all(9), u64::MAX).unwrap()), [1, 3]);
}

#[test]
fn a_node_whose_clock_was_set_back_goes_on_with_higher_numbers() {
    let directory = TempDir::new().unwrap();
    let archive = |directory: &TempDir| {
        let options = ArchiveOptions { directory: directory.path().join("logs"), bytes_max: 1 << 20 };
        Archive::begin(options, String::new()).unwrap()
    };
    let before = archive(&directory);
    assert_eq!(before.highest(), 0);
    for (number, function) in [(5000, "a"), (9000, "b"), (7000, "c")] {
        before.keep(numbered(number, function, "x"));
    }
    before.settle(Duration::from_secs(10));
    drop(before);
    assert_eq!(archive(&directory).highest(), 9000);
}

#[test]
fn of_a_request_no_more_is_read_than_its_time() {
    let directory = TempDir::new().unwrap();
    let mut writer = writer(directory.path(), 1 << 20);
    let of = |sequence, function, begun_us, parent: Option<u64>| {
        let mut record = Record::clone(&numbered(sequence, function, "x"));
        record.request_id = "same".to_owned();
        record.begun_us = begun_us;
        record.parent = parent.map(crate::invocation::Span::from_bits);
        Arc::new(record)
    };
    // Somebody had used the same name for another request before.
    writer.write(&[of(100, "a", 50, None)]).unwrap();
    writer.write(&[of(900, "b", 820, Some(1)), of(1000, "a", 800, None)]).unwrap();
    let wanted = Wanted { request_id: Some("same".to_owned()), ..all(10) };
    assert_eq!(numbers(&find(directory.path(), &wanted, u64::MAX).unwrap()), [900, 1000]);
}

#[test]
fn a_line_that_was_cut_off_harms_no_other_one() {
    let directory = TempDir::new().unwrap();
    let root = directory.path();
    writer(root, 1 << 20).write(&[numbered(1, "a", "x"), numbered(2, "a", "y")]).unwrap();
    let path = segments(&root.join("a")).unwrap()[0].1.clone();
    let whole = fs::read(&path).unwrap();
    for cut in (1..whole.len()).rev().step_by(7) {
        fs::write(&path, &whole[..cut]).unwrap();
        writer(root, 1 << 20).write(&[numbered(3, "a", "z")]).unwrap();
        let found = numbers(&find(root, &all(10), u64::MAX).unwrap());
        let before = whole[..cut].iter().filter(|byte| **byte == b'\n').count() as u64;
        let kept_whole = (1..=before).chain([3]).collect::<Vec<_>>();
        // Of one that lacks nothing but its end nothing is lost.
        let also = (1..=before + 1).chain([3]).collect::<Vec<_>>();
        assert!(found == kept_whole || found == also, "{cut}: {found:?}");
    }
}

#[test]
fn a_disk_that_takes_nothing_is_no_reason_to_end() {
    let directory = TempDir::new().unwrap();
    let file = directory.path().join("file");
    fs::write(&file, "in the way").unwrap();
    let archive = ArchiveOptions { directory: file.clone(), bytes_max: 1 << 20 };
    let archive = Archive::begin(archive, String::new()).unwrap();
    archive.keep(numbered(1, "a", "x"));
    archive.settle(Duration::from_secs(10));
    fs::remove_file(&file).unwrap();
    archive.keep(numbered(2, "a", "x"));
    archive.settle(Duration::from_secs(10));
    assert_eq!(numbers(&archive.find(&all(9), u64::MAX).unwrap()), [2], "it goes on when it can");
}

proptest! {
    /// Against all records in a list.
    #[test]
    fn a_search_finds_what_a_list_has(
        written in prop::collection::vec((0..3_usize, 0..3000_usize, any::<bool>()), 1..60),
        (after, before, limit) in (0..60_u64, 0..70_u64, 1..20_usize),
        function in prop::option::of(0..3_usize),
    ) {
        let names = ["a", "b", "c"];
        let directory = TempDir::new().unwrap();
        let mut writer = writer(directory.path(), 2 << 20);
        let mut list = Vec::new();
        for (at, &(name, len, has_failed)) in written.iter().enumerate() {
            let record = Record { status: if has_failed { 500 } else { 200 }, ..Record::clone(&numbered(1 + at as u64, names[name], &"é\n".repeat(len))) };
            list.push(Arc::new(record));
        }
        for some in list.chunks(7) {
            writer.write(some).unwrap();
        }
        let function = function.map(|function| names[function].to_owned());
        let wanted = Wanted { function, after, failed: limit % 2 == 0, limit, ..Wanted::default() };
        let fits = |record: &&Arc<Record>| record.sequence < before && record.sequence > after && wanted.fits(record);
        let expected: Vec<u64> = list.iter().filter(fits).map(|record| record.sequence).collect();
        let expected = &expected[expected.len().saturating_sub(limit)..];
        prop_assert_eq!(numbers(&find(directory.path(), &wanted, before).unwrap()), expected);
    }
}
