// SPDX-License-Identifier: Apache-2.0
//! The finished codelets in the real sandbox, each by itself: what it makes of
//! its arguments, the same in every language that has it.

use std::sync::Arc;

use objects::{FailureCode, Handle, Kind, Limits, Part, Selection, TreeBuilder, TreeView};
use sandbox::wasm::{Class, Codelets, Invoker, Options};
use sandbox::{Call, Fault};
use store::Store;

use crate::layout;

/// A sandbox and the store behind it.
struct Bench {
    store: Arc<Store>,
    codelets: Arc<Codelets>,
    invoker: Invoker,
}

impl Bench {
    fn new() -> Self {
        let options = store::Options { home: None, memory_bytes: 1 << 30, relations_bytes: 1 << 20 };
        let store = Arc::new(Store::open(options).unwrap());
        let options = Options { workers: 1, ..Options::default() };
        let codelets = Codelets::new(options, store.clone()).unwrap();
        let invoker = Invoker::new(codelets.clone());
        Self { store, codelets, invoker }
    }

    fn codelet(&self, name: &str) -> Handle {
        let path = layout::codelets().join(format!("{name}.wasm"));
        let module =
            std::fs::read(&path).unwrap_or_else(|_| panic!("no {}: run `make guests`", path.display()));
        self.store.keep_blob(&module)
    }

    fn tree(&self, entries: &[Handle]) -> Handle {
        let tree: TreeBuilder = entries.iter().copied().collect();
        self.store.keep_tree(tree.view())
    }

    /// One application, not evaluated any further.
    fn apply(&mut self, name: &str, arguments: &[Handle]) -> Result<Handle, Fault> {
        let limits = Limits::default();
        let procedure = self.codelet(name);
        let handle = self.tree(&[&[limits.handle().unwrap(), procedure], arguments].concat());
        let application = self.store.local(handle).unwrap();
        self.invoker.invoke(Call::new(application, handle, limits, procedure)).result
    }

    fn bytes(&self, handle: Handle) -> Vec<u8> {
        match handle.literal_bytes() {
            Some(literal) => literal.to_vec(),
            None => self.store.local(handle).unwrap().bytes().to_vec(),
        }
    }

    /// The entries of a tree, or of the definition of a thunk or encode.
    fn entries(&self, handle: Handle) -> Vec<Handle> {
        let object = self.store.local(handle.definition()).unwrap();
        TreeView::from_bytes(object.bytes()).unwrap().iter().collect()
    }

    fn numbers(&self, handle: Handle) -> Vec<u64> {
        self.bytes(handle).as_chunks().0.iter().map(|&number| u64::from_le_bytes(number)).collect()
    }
}

fn byte(value: u8) -> Handle {
    Handle::blob(&[value])
}

#[test]
fn add_inc_and_if_agree_in_all_languages() {
    let mut bench = Bench::new();
    for suffix in ["", "-c", "-wat"] {
        for (a, b) in [(0, 0), (3, 4), (200, 100), (255, 255)] {
            let sum = bench.apply(&format!("add{suffix}"), &[byte(a), byte(b)]);
            assert_eq!(sum, Ok(byte(a.wrapping_add(b))), "add{suffix}({a}, {b})");
        }
        for n in [0, 255, u64::MAX] {
            let next = bench.apply(&format!("inc{suffix}"), &[Handle::u64(n)]);
            assert_eq!(next, Ok(Handle::u64(n.wrapping_add(1))), "inc{suffix}({n})");
        }
        let thunk = bench.tree(&[byte(1)]).application().unwrap();
        let branches = [thunk, byte(9)];
        for (predicate, taken) in
            [(byte(1), branches[0]), (byte(0), branches[1]), (Handle::blob(b""), branches[1])]
        {
            let chosen = bench.apply(&format!("if{suffix}"), &[predicate, branches[0], branches[1]]);
            assert_eq!(chosen, Ok(taken), "if{suffix}({predicate})");
        }
    }
}

#[test]
fn fib_makes_two_calls_of_itself_and_one_of_add() {
    let mut bench = Bench::new();
    let add = bench.codelet("add");
    for suffix in ["", "-c", "-wat"] {
        let name = format!("fib{suffix}");
        let fib = bench.codelet(&name);
        assert_eq!(bench.apply(&name, &[add, byte(1)]), Ok(byte(1)));
        let sum = bench.apply(&name, &[add, byte(10)]).unwrap();
        assert_eq!(sum.kind(), Kind::Application);
        let [limits, procedure, a, b] = bench.entries(sum)[..] else { panic!("not two arguments") };
        assert_eq!(procedure, add);
        for (encode, n) in [(a, 9), (b, 8)] {
            assert_eq!(encode.kind(), Kind::Strict);
            assert_eq!(bench.entries(encode), [limits, fib, add, byte(n)]);
        }
    }
}

/// Counts in the simplest way: occurrences, words, lines, bytes.
fn naive(needle: &[u8], text: &[u8]) -> Vec<u64> {
    let words = text.split(|byte| b" \t\n\x0b\x0c\r".contains(byte)).filter(|word| !word.is_empty()).count();
    let (mut occurrences, mut at) = (0, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty() && !needle.is_empty()) {
        let is_match = rest.starts_with(needle);
        occurrences += u64::from(is_match);
        at += if is_match { needle.len() } else { 1 };
    }
    let lines = text.iter().filter(|&&byte| byte == b'\n').count();
    vec![occurrences, words as u64, lines as u64, text.len() as u64]
}

#[test]
fn count_string_counts_as_one_would_by_hand() {
    let mut bench = Bench::new();
    // Xorshift: a failure can be repeated.
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let mut below = |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % bound as u64) as usize
    };
    let alphabet = b"the  \n\t\xc3ab";
    // Around the vector, the window, and several windows.
    for size in [0, 1, 15, 16, 17, 1000, 32_767, 32_768, 32_769, 65_537, 300_000] {
        let text: Vec<u8> = (0..size).map(|_| alphabet[below(alphabet.len())]).collect();
        let blob = bench.store.keep_blob(&text);
        for needle in [&b""[..], b"t", b"he", b"the", b"  ", b"th e", b"abab", b"the the", b"\n"] {
            let counts = bench.apply("count-string", &[Handle::blob(needle), blob]).unwrap();
            assert_eq!(bench.numbers(counts), naive(needle, &text), "{needle:?} in {size} bytes");
        }
    }
    let needle = bench.store.keep_blob(&[b'x'; 1024]);
    let text = bench.store.keep_blob(&[b'x'; 100_000]);
    let counts = bench.apply("count-string", &[needle, text]).unwrap();
    assert_eq!(bench.numbers(counts), [97, 1, 0, 100_000]);
    let needle = bench.store.keep_blob(&[b'x'; 1025]);
    let fault = bench.apply("count-string", &[needle, text]).unwrap_err();
    assert_eq!((fault.code, fault.detail.as_str()), (FailureCode::Guest, "a needle of over 1024 bytes"));
}

#[test]
fn merge_counts_adds_number_by_number() {
    let mut bench = Bench::new();
    let blob = |numbers: [u64; 4]| Handle::blob(numbers.map(u64::to_le_bytes).as_flattened());
    let store = |bench: &Bench, numbers: [u64; 4]| {
        bench.store.keep_blob(numbers.map(u64::to_le_bytes).as_flattened());
        blob(numbers)
    };
    let arguments =
        [[1, 2, 3, u64::MAX], [10, 20, 30, 2], [0, 0, 1 << 40, 0]].map(|numbers| store(&bench, numbers));
    for name in ["merge-counts", "merge-counts-c"] {
        let sums = bench.apply(name, &arguments).unwrap();
        assert_eq!(bench.numbers(sums), [11, 22, 33 + (1 << 40), 1], "{name}");
        let fault = bench.apply(name, &[arguments[0], Handle::u64(1)]).unwrap_err();
        assert_eq!(fault.detail, "the counts differ in length", "{name}");
    }
}

#[test]
fn get_file_takes_one_step() {
    let mut bench = Bench::new();
    let info = bench.store.keep_blob(b"d etc\nf etc2\nd usr\nf a file with a long name\n");
    let directory = bench.tree(&[info, byte(1), byte(2), byte(3), byte(4)]).lowered().unwrap();
    let child = |bench: &Bench, target: Handle, index: u64| {
        let tree = Selection { target, part: Part::Element(index) }.to_tree();
        bench.store.keep_tree(tree.view()).selection().unwrap()
    };
    for name in ["get-file", "get-file-c"] {
        let file = |bench: &mut Bench, path: &str| {
            let path = bench.store.keep_blob(path.as_bytes());
            bench.apply(name, &[path, info, directory])
        };
        assert_eq!(file(&mut bench, "etc2"), Ok(child(&bench, directory, 2)), "{name}");
        assert_eq!(file(&mut bench, "/a file with a long name"), Ok(child(&bench, directory, 4)), "{name}");
        let next = file(&mut bench, "usr//lib/x").unwrap();
        let usr = child(&bench, directory, 3);
        let expected = [
            Limits::default().handle().unwrap(),
            bench.codelet(name),
            Handle::blob(b"lib/x"),
            child(&bench, usr, 0).strict().unwrap(),
            usr.shallow().unwrap(),
        ];
        assert_eq!((next.kind(), bench.entries(next)), (Kind::Application, expected.to_vec()), "{name}");
        for (path, detail) in [
            ("etc3", "no such file or directory"),
            ("etc2/x", "a file in the middle of the path"),
            ("/", "the path is empty"),
        ] {
            let fault = file(&mut bench, path).unwrap_err();
            assert_eq!((fault.code, fault.detail.as_str()), (FailureCode::Guest, detail), "{name} of {path}");
        }
    }
}

/// The keys of a node, as `sinew put --keys` makes them.
fn keys(level: u32, keys: &[&[u8]]) -> Vec<u8> {
    let mut numbers = vec![level, keys.len() as u32, 0];
    let mut bytes = Vec::new();
    for key in keys {
        bytes.extend_from_slice(key);
        numbers.push(bytes.len() as u32);
    }
    numbers.into_iter().flat_map(u32::to_le_bytes).chain(bytes).collect()
}

#[test]
fn find_key_takes_one_step() {
    let mut bench = Bench::new();
    let child = |bench: &Bench, target: Handle, index: u64| {
        let tree = Selection { target, part: Part::Element(index) }.to_tree();
        bench.store.keep_tree(tree.view()).selection().unwrap()
    };
    let long = [b'm'; 1024];
    let names: [&[u8]; 5] = [b"", b"a key that is longer than what fits into a handle", b"b", b"bc", &long];
    for level in [0, 3] {
        let listed = bench.store.keep_blob(&keys(level, &names));
        let entries = [&[listed][..], &[1, 2, 3, 4, 5].map(byte)].concat();
        let node = bench.tree(&entries).lowered().unwrap();
        let find = |bench: &mut Bench, key: &[u8]| {
            let key = bench.store.keep_blob(key);
            bench.apply("find-key", &[key, listed, node])
        };
        let descent = |bench: &Bench, key: &[u8], index: u64| {
            let below = child(bench, node, index);
            let keys = child(bench, below, 0).strict().unwrap();
            let limits = Limits::default().handle().unwrap();
            let call = [limits, bench.codelet("find-key"), Handle::blob(key), keys, below.shallow().unwrap()];
            bench.tree(&call).application().unwrap()
        };
        for (index, name) in (1..).zip(names) {
            let expected = if level == 0 { child(&bench, node, index) } else { descent(&bench, name, index) };
            assert_eq!(find(&mut bench, name), Ok(expected), "{name:?} at level {level}");
        }
        for (name, index) in [(&b"a"[..], 1), (b"bb", 3), (b"bcd", 4), (b"zz", 5)] {
            let found = find(&mut bench, name);
            if level == 0 {
                assert_eq!(found.unwrap_err().detail, "no such key", "{name:?}");
            } else {
                assert_eq!(found, Ok(descent(&bench, name, index)), "{name:?}");
            }
        }
        assert_eq!(find(&mut bench, &[b'm'; 1025]).unwrap_err().detail, "a key of over 1024 bytes");
    }
}

#[test]
fn find_key_says_what_is_wrong_with_keys() {
    let mut bench = Bench::new();
    let right = keys(0, &[b"a", b"b"]);
    let mut find = |keys: &[u8], children: usize| {
        let keys = bench.store.keep_blob(keys);
        let node = bench.tree(&vec![byte(1); 1 + children]);
        bench.apply("find-key", &[byte(b'b'), keys, node]).map_err(|fault| (fault.code, fault.detail))
    };
    assert!(find(&right, 2).is_ok());
    let refused = |detail: &str| Err((FailureCode::Guest, detail.to_owned()));
    assert_eq!(find(&right, 3), refused("the keys are another node's"));
    assert_eq!(find(&keys(0, &[]), 0), refused("no such key"));
    for len in [4, 12, 16, right.len() - 2] {
        assert!(find(&right[..len], 2).is_err(), "{len} bytes of the keys");
    }
    // Numbers that lead out of the blob, or back.
    for (at, number) in [(12, u32::MAX), (16, 1 << 20), (16, 0), (12, 3), (4, u32::MAX)] {
        let mut wrong = right.clone();
        wrong[at..at + 4].copy_from_slice(&number.to_le_bytes());
        assert!(find(&wrong, 2).is_err(), "{number} at {at}");
    }
}

#[test]
fn curry_map_and_map_reduce_build_what_they_say() {
    let mut bench = Bench::new();
    let (add, inc) = (bench.codelet("add"), bench.codelet("inc"));
    let curried = bench.apply("curry", &[add, byte(3)]).unwrap();
    assert_eq!((curried.kind(), bench.entries(curried)), (Kind::Tree, vec![add, byte(3)]));

    let blob = bench.store.keep_blob(&[7; 100]);
    let thunk = bench.tree(&[byte(1)]).application().unwrap();
    let items = bench.tree(&[byte(1), blob.lowered().unwrap(), thunk]);
    let mapped = bench.apply("map", &[inc, items]).unwrap();
    let arguments: Vec<_> = bench.entries(mapped).into_iter().map(|call| bench.entries(call)[2]).collect();
    let asked = blob.identification().unwrap().strict().unwrap();
    assert_eq!(arguments, [byte(1), asked, thunk.strict().unwrap()]);

    let reduced = bench.apply("map-reduce", &[inc, add, items.lowered().unwrap()]).unwrap();
    let [_, procedure, pair, last] = bench.entries(reduced)[..] else { panic!("not two arguments") };
    assert_eq!(procedure, add);
    assert_eq!(bench.entries(pair)[1], add);
    assert_eq!(bench.entries(last)[1], inc);
    let fault = bench.apply("map-reduce", &[inc, add, TreeBuilder::new().view().handle()]);
    assert!(fault.is_err());
}

#[test]
fn lists_of_100_000_items_are_no_trouble() {
    let mut bench = Bench::new();
    let inc = bench.codelet("inc");
    let items: Vec<Handle> = (0..100_000).map(Handle::u64).collect();
    let items = bench.tree(&items);
    let mapped = bench.apply("map", &[inc, items]).unwrap();
    assert_eq!(bench.entries(mapped).len(), 100_000);
    let reduced = bench.apply("map-reduce", &[inc, inc, items]).unwrap();
    assert_eq!(reduced.kind(), Kind::Application);
}

#[test]
fn instances_can_be_used_again() {
    let bench = Bench::new();
    let class = |name: &str| bench.codelets.prepare(bench.codelet(name), false).map(|ready| ready.class);
    for name in ["add-wat", "inc-wat", "if-wat"] {
        assert_eq!(class(name), Ok(Class::Stateless), "{name}");
    }
    // Only `map` grows its memory, and then gets a new instance.
    let folder = std::fs::read_dir(layout::codelets()).unwrap();
    for path in folder.map(|entry| entry.unwrap().path()) {
        let name = path.file_stem().and_then(|stem| stem.to_str()).unwrap();
        assert_ne!(class(name), Ok(Class::Fresh), "{name}");
    }
}
