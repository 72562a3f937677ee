// SPDX-License-Identifier: Apache-2.0
//! Memory that native functions hand over (`docs/spec/memory-map.md`, section 6): by a maker that keeps
//! to it, and by one that does not.

use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::fs::FileExt as _;

use linux::{Lent, Outbox};

use crate::node::frame::{LEAVING, MAPPED, RAISED, RESULT};
use crate::node::{Node, STEP, text, texts};

const HEAD: usize = 512;
/// Not among the first addresses of the plan, which are the sanitizer's.
const BASE: u64 = 0x2000_0000_0000;
const MIB: u64 = 1 << 20;

/// The fields of a value's head.
#[derive(Debug, Clone)]
struct Head {
    mark: [u8; 8],
    base: u64,
    length: u64,
    at: u64,
    kind_len: u16,
    kind: Vec<u8>,
}

impl Head {
    /// A right one, of a file of two pages.
    fn at(base: u64) -> Self {
        let mark = [2, 0, 0, 0, b'{', b'}', 4, 1];
        Self { mark, base, length: 8192, at: base + 4096, kind_len: 4, kind: b"text".to_vec() }
    }

    fn bytes(&self) -> Vec<u8> {
        let numbers = [self.base, self.length, self.at].map(u64::to_le_bytes).concat();
        let mut bytes = [&self.mark[..], &numbers, &self.kind_len.to_le_bytes(), &self.kind].concat();
        bytes.resize(HEAD, 0);
        bytes
    }

    /// A file with this head, in which `at` refers to a text by its address.
    fn file(&self, len: u64) -> Lent {
        let outbox = Outbox::create(len).unwrap();
        let file = File::from(outbox.fd().try_clone_to_owned().unwrap());
        let mut bytes = self.bytes();
        bytes.truncate(usize::try_from(len).unwrap());
        file.write_all_at(&bytes, 0).unwrap();
        if len > 4096 {
            file.write_all_at(&(self.base + 4096 + 8).to_le_bytes(), 4096).unwrap();
            file.write_all_at(b"mapped\0", 4096 + 8).unwrap();
        }
        outbox.lend(len).unwrap()
    }
}

/// Has a step look at values: kind and payload of the answer.
fn look(node: &mut Node, values: &[&Lent]) -> (u8, Vec<u8>) {
    let fds: Vec<BorrowedFd<'_>> = values.iter().map(|value| value.fd()).collect();
    node.send_step(STEP, b"look", &fds, None);
    let (kind, _, payload) = node.frame();
    (kind, payload)
}

/// What it found there.
fn found(node: &mut Node, values: &[&Lent]) -> String {
    let (kind, payload) = look(node, values);
    assert_eq!(kind, RESULT, "{}", texts(&payload).join(" "));
    text(&payload).split_once('}').unwrap().1.to_owned()
}

fn refused(node: &mut Node, values: &[&Lent]) -> String {
    let (kind, payload) = look(node, values);
    assert_eq!(kind, RAISED);
    texts(&payload).join(" ").trim().to_owned()
}

/// Has it make a value with a text of so many bytes; the length that it says.
fn make(node: &mut Node, outbox: &Outbox, base: u64, bytes: u64) -> u64 {
    node.send_step(STEP, format!("make {bytes}").as_bytes(), &[], Some((outbox.fd(), base)));
    let (kind, _, payload) = node.frame();
    assert_eq!(kind, MAPPED, "{}", texts(&payload).join(" "));
    u64::from_le_bytes(payload.try_into().unwrap())
}

#[test]
fn what_one_makes_another_one_finds_at_the_same_address() {
    let mut node = Node::new();
    let mut lent = Vec::new();
    for number in 0..3 {
        let (outbox, base) = (Outbox::create(64 * MIB).unwrap(), BASE + number * 64 * MIB);
        let len = make(&mut node, &outbox, base, 100_000);
        assert!((100_000..110_000).contains(&len), "{len}");
        lent.push(outbox.lend(len).unwrap());
    }
    // In the process that made them, too, which has none of it mapped any more.
    for mut reader in [node, Node::new()] {
        let all: Vec<&Lent> = lent.iter().collect();
        let made = |count: usize| vec!["text/x-made 99999"; count].join(" ");
        assert_eq!(found(&mut reader, &all), made(3));
        // What was written to them is written to nobody else's, and is gone.
        assert_eq!(found(&mut reader, &all[1..]), made(2));
    }
}

#[test]
fn what_is_forked_has_none_of_it() {
    let mut node = Node::new();
    let outbox = Outbox::create(MIB).unwrap();
    node.send_step(STEP, b"fork", &[], Some((outbox.fd(), BASE)));
    let (kind, _, payload) = node.frame();
    assert_eq!(kind, MAPPED, "{}", texts(&payload).join(" "));
}

#[test]
fn who_is_charged_for_a_quarter_leaves() {
    let mut node = Node::new();
    // Of a limit of 32 MiB: the first one is little.
    for (number, mib) in [(0, 4), (1, 5)] {
        let outbox = Outbox::create(64 * MIB).unwrap();
        let len = make(&mut node, &outbox, BASE + number * 64 * MIB, mib * MIB);
        drop(outbox.lend(len).unwrap());
    }
    assert_eq!(node.frame().0, LEAVING);
    assert_eq!(node.frame_or_end(), None);
}

#[test]
fn memory_is_for_steps_and_has_a_bound() {
    let mut node = Node::new();
    let outbox = Outbox::create(16 * MIB).unwrap();
    let lent = Some((outbox.fd(), BASE));
    let mut told = |head: &[u8], body: &[u8], lent| {
        node.send_step(head, body, &[], lent);
        let (kind, _, payload) = node.frame();
        assert_eq!(kind, RAISED);
        texts(&payload).join(" ").trim().to_owned()
    };
    assert_eq!(told(b"", b"make 10", lent), "MemoryError Operation not supported", "it is no step");
    assert_eq!(told(STEP, b"make 10", None), "MemoryError Operation not supported", "nothing was lent");
    assert_eq!(
        told(STEP, b"make 10", Some((outbox.fd(), 0))),
        "MemoryError Cannot allocate memory",
        "no address"
    );
    assert_eq!(told(STEP, b"make 20000000", lent), "MemoryError Cannot allocate memory");
    // What was not answered is not handed over, and the next one begins anew, with a file of its own.
    assert_eq!(told(STEP, b"make and fail", lent), "Error not today");
    assert!(make(&mut node, &Outbox::create(16 * MIB).unwrap(), BASE, 10) < 1024);
}

#[test]
fn who_lies_about_a_value_is_found_out() {
    let mut node = Node::new();
    let right = Head::at(BASE);
    assert_eq!(found(&mut node, &[&right.file(8192)]), "text 6");
    let cases: Vec<(&str, Head)> = vec![
        ("another kind", Head { mark: [2, 0, 0, 0, b'{', b'}', 2, 1], ..right.clone() }),
        ("another version", Head { mark: [2, 0, 0, 0, b'{', b'}', 4, 2], ..right.clone() }),
        ("half a page", Head { base: BASE + 512, ..right.clone() }),
        ("before the plan", Head { base: 0x5555_5555_0000, at: 0x5555_5555_1000, ..right.clone() }),
        ("no address", Head { base: 0, at: 4096, ..right.clone() }),
        ("behind the plan", Head { base: 0x7fff_0000_0000, at: 0x7fff_0000_1000, ..right.clone() }),
        ("over its end", Head { base: 0x4000_0000_0000 - 4096, at: 0x4000_0000_0000, ..right.clone() }),
        ("longer than the file", Head { length: 1 << 40, ..right.clone() }),
        ("shorter than the file", Head { length: 4096, ..right.clone() }),
        ("as long as can be", Head { length: u64::MAX, ..right.clone() }),
        ("in its head", Head { at: BASE + 8, ..right.clone() }),
        ("behind its end", Head { at: BASE + 8192, ..right.clone() }),
        ("elsewhere", Head { at: 0x10_0000, ..right.clone() }),
        ("a type that is too long", Head { kind_len: 257, ..right.clone() }),
        ("a type that is longer than all", Head { kind_len: u16::MAX, ..right.clone() }),
        ("a type of two lines", Head { kind: b"a\nb ".to_vec(), ..right.clone() }),
        ("a type of half a character", Head { kind: b"a\xc3\0 ".to_vec(), ..right.clone() }),
    ];
    for (what, head) in cases {
        let told = refused(&mut node, &[&head.file(8192)]);
        assert_eq!(told, "NativeError a value cannot be mapped: Protocol error", "{what}");
    }
    for len in [0, 1, 511, 512] {
        let told = refused(&mut node, &[&Head { length: len, ..right.clone() }.file(len)]);
        assert_eq!(told, "NativeError a value cannot be mapped: Protocol error", "{len}");
    }
    // One that is right beside one that is not is not mapped afterwards either.
    let wrong = Head { length: 1, ..Head::at(BASE + MIB) };
    refused(&mut node, &[&right.file(8192), &wrong.file(8192)]);
    assert_eq!(found(&mut node, &[&right.file(8192)]), "text 6");
}

#[test]
fn what_lies_in_the_way_is_left_where_it_is() {
    let mut node = Node::new();
    let (one, other) = (Head::at(BASE).file(8192), Head::at(BASE + 4096).file(8192));
    let told = refused(&mut node, &[&one, &other]);
    assert_eq!(told, "__main__.Unmappable a value cannot be mapped: File exists");
    // Another process may be given them.
    assert_eq!(node.frame().0, LEAVING);
    assert_eq!(node.frame_or_end(), None);
}

#[test]
fn descriptors_that_are_lost_fail_the_call_alone() {
    // Besides the first three it has room for a few.
    let mut node = Node::with_files_max(10);
    let values: Vec<Lent> = (0..20).map(|at| Head::at(BASE + at * MIB).file(8192)).collect();
    let all: Vec<&Lent> = values.iter().collect();
    assert_eq!(found(&mut node, &all[..2]), "text 6 text 6");
    for _ in 0..2 {
        let told = refused(&mut node, &all);
        assert_eq!(told, "NativeError a value cannot be mapped: Too many open files");
        assert_eq!(found(&mut node, &all[3..5]), "text 6 text 6", "the next ones are not taken for them");
    }
    assert_eq!(node.call(b"", b"text").0, RESULT);
}

/// Whether the kernel makes huge pages of files in memory when it is asked to.
fn has_huge_pages() -> bool {
    let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap();
    let mut numbers = release.split(['.', '-']).map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    let enabled = std::fs::read_to_string("/sys/kernel/mm/transparent_hugepage/shmem_enabled");
    version >= (6, 2) && enabled.is_ok_and(|enabled| !enabled.contains("[deny]"))
}

#[test]
fn what_is_long_is_in_huge_pages() {
    let mut node = Node::new();
    let mut huge = |bytes: u64| -> u64 {
        let outbox = Outbox::create(64 * MIB).unwrap();
        node.send_step(STEP, format!("huge {bytes}").as_bytes(), &[], Some((outbox.fd(), BASE)));
        let (kind, _, payload) = node.frame();
        assert_eq!(kind, RESULT, "{}", texts(&payload).join(" "));
        text(&payload).split_once('}').unwrap().1.parse().unwrap()
    };
    // The first 2 MiB are not, nor what is longer than a half of the limit, of 32 MiB here.
    let kib = if has_huge_pages() { 6 << 10 } else { 0 };
    assert_eq!([huge(MIB), huge(20 * MIB)], [0, 0]);
    // Now and then a machine that is busy has none at once.
    assert!((0..10).any(|_| huge(8 * MIB - 4096) == kib));
}
