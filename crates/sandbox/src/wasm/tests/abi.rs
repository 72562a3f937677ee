// SPDX-License-Identifier: Apache-2.0
//! Every function of the ABI: what it does, and what it refuses.

use objects::{Failure, FailureCode, Handle, Selection};
use objects::{Part, TreeBuilder};

use super::*;

/// Handles of every kind, for use as arguments, beside their ABI kind.
fn one_of_each(world: &World) -> Vec<(Handle, u64)> {
    let blob = world.store.keep_blob(&[1; 100]);
    let tree: TreeBuilder = [blob, Handle::u64(7)].into_iter().collect();
    let tree = world.store.keep_tree(tree.view());
    let application = tree.application().unwrap();
    let failure = Failure { code: FailureCode::Trap, application, detail: Handle::literal(b"why").unwrap() };
    let (failure, failure_tree) = failure.to_tree();
    world.store.keep_tree(failure_tree.view());
    vec![
        (Handle::u64(1), 0),
        (blob, 0),
        (tree, 1),
        (blob.lowered().unwrap(), 2),
        (tree.lowered().unwrap(), 3),
        (application, 4),
        (blob.identification().unwrap(), 4),
        (tree.selection().unwrap(), 4),
        (application.strict().unwrap(), 5),
        (application.shallow().unwrap(), 5),
        (failure, 6),
    ]
}

#[test]
fn add_reads_its_arguments_and_makes_a_literal() {
    let mut world = World::new();
    let add = plain(
        "(call $blob_u64 (i64.add (call $read_u64 (i32.const 3) (i64.const 0))
                                  (call $read_u64 (i32.const 4) (i64.const 0))) (i32.const 1))",
    );
    let result = world.ok(&add, &[Handle::literal(&[200]).unwrap(), Handle::literal(&[55]).unwrap()]);
    assert_eq!(result.literal_bytes(), Some(&[255][..]));
}

#[test]
fn kind_tells_thunks_and_encodes_apart_but_not_their_styles() {
    let mut world = World::new();
    let kind = plain(&number("(call $kind (i32.const 3))"));
    for (handle, expected) in one_of_each(&world) {
        assert_eq!(world.number(&kind, &[handle]), expected, "{handle}");
    }
    let own = plain(&number("(call $kind (local.get $h))"));
    assert_eq!(world.number(&own, &[]), 1);
}

#[test]
fn size_is_for_values_only() {
    let mut world = World::new();
    let size = plain("(call $blob_u64 (call $size (i32.const 3)) (i32.const 8))");
    let sizes = [8, 100, 2, 100, 2];
    for ((handle, kind), i) in one_of_each(&world).into_iter().zip(0..) {
        match kind {
            4 => world.fails(&size, &[handle], FailureCode::BadHandle, "size: handle 3 is a thunk"),
            5 => world.fails(&size, &[handle], FailureCode::BadHandle, "size: handle 3 is an encode"),
            6 => assert_eq!(world.number(&size, &[handle]), 3),
            _ => assert_eq!(world.number(&size, &[handle]), sizes[i as usize], "{handle}"),
        }
    }
}

#[test]
fn equal_compares_names() {
    let mut world = World::new();
    let equal = plain(&number("(call $equal (i32.const 3) (i32.const 4))"));
    let blob = world.store.keep_blob(&[1; 100]);
    assert_eq!(world.number(&equal, &[blob, blob]), 1);
    assert_eq!(world.number(&equal, &[blob, blob.lowered().unwrap()]), 0);
    assert_eq!(world.number(&equal, &[Handle::u64(1), Handle::literal(&[1]).unwrap()]), 0);
}

#[test]
fn read_copies_what_is_there() {
    let mut world = World::new();
    // [count, first 4 bytes at 16, whether the byte after the copy is untouched]
    let read = with_memory(
        "(i32.store8 (i32.const 19) (i32.const 0xEE))
         (i32.store (i32.const 0) (call $read (i32.const 3) (call $read_u64 (i32.const 4) (i64.const 0)) (i32.const 16) (i32.const 3)))
         (i32.store (i32.const 4) (i32.load (i32.const 16)))
         (call $blob (i32.const 0) (i32.const 8))",
    );
    let bytes: Vec<u8> = (0..100).collect();
    let hashed = world.store.keep_blob(&bytes);
    let literal = Handle::literal(&bytes[..30]).unwrap();
    let mut check = |blob: Handle, offset: u64, expected: &[u8]| {
        let result = world.ok(&read, &[blob, Handle::u64(offset)]);
        assert_eq!(result.literal_bytes().unwrap(), expected, "{blob} at {offset}");
    };
    check(hashed, 0, &[3, 0, 0, 0, 0, 1, 2, 0xEE]);
    check(hashed, 97, &[3, 0, 0, 0, 97, 98, 99, 0xEE]);
    check(hashed, 98, &[2, 0, 0, 0, 98, 99, 0, 0xEE]);
    check(hashed, 100, &[0, 0, 0, 0, 0, 0, 0, 0xEE]);
    check(literal, 29, &[1, 0, 0, 0, 29, 0, 0, 0xEE]);
    check(literal, 30, &[0, 0, 0, 0, 0, 0, 0, 0xEE]);
    for offset in [101, 1 << 33, 1 << 63, u64::MAX] {
        let text = format!("read: offset {offset} is past the end of 100 bytes");
        world.fails(&read, &[hashed, Handle::u64(offset)], FailureCode::BadHandle, &text);
    }
}

#[test]
fn read_u64_pads_with_zeros() {
    let mut world = World::new();
    let read = plain(
        "(call $blob_u64 (call $read_u64 (i32.const 3) (call $read_u64 (i32.const 4) (i64.const 0))) (i32.const 8))",
    );
    let blob = world.store.keep_blob(&[0x11; 40]);
    for (offset, expected) in [(0, 0x1111_1111_1111_1111), (32, 0x1111_1111_1111_1111), (38, 0x1111), (40, 0)]
    {
        assert_eq!(world.number(&read, &[blob, Handle::u64(offset)]), expected);
    }
    world.fails(&read, &[blob, Handle::u64(41)], FailureCode::BadHandle, "read_u64: offset 41");
}

#[test]
fn only_blobs_are_read_and_only_trees_are_entered() {
    let mut world = World::new();
    let read = with_memory("(call $read (i32.const 3) (i64.const 0) (i32.const 0) (i32.const 9))");
    let read_u64 = plain("(drop (call $read_u64 (i32.const 3) (i64.const 0))) (i32.const 1)");
    let entry = plain("(call $entry (i32.const 3) (i64.const 0))");
    let fail = plain("(call $fail (i32.const 3)) (i32.const 1)");
    for (handle, kind) in one_of_each(&world) {
        if kind != 0 {
            world.fails(&read, &[handle], FailureCode::BadHandle, "not a blob");
            world.fails(&read_u64, &[handle], FailureCode::BadHandle, "not a blob");
            world.fails(&fail, &[handle], FailureCode::BadHandle, "not a blob");
        }
        if kind != 1 && kind != 6 {
            world.fails(&entry, &[handle], FailureCode::BadHandle, "not a tree");
        }
    }
}

#[test]
fn entry_hands_out_what_the_tree_holds() {
    let mut world = World::new();
    let entry = plain("(call $entry (i32.const 3) (call $read_u64 (i32.const 4) (i64.const 0)))");
    let entries: Vec<Handle> = one_of_each(&world).into_iter().map(|(handle, _)| handle).collect();
    let tree: TreeBuilder = entries.iter().copied().collect();
    let tree = world.store.keep_tree(tree.view());
    for (index, expected) in (0..).zip(&entries) {
        assert_eq!(world.ok(&entry, &[tree, Handle::u64(index)]), *expected);
    }
    let past = entries.len() as u64;
    for index in [past, 1 << 40, u64::MAX] {
        world.fails(&entry, &[tree, Handle::u64(index)], FailureCode::BadHandle, "there is no entry");
    }
    let empty = world.store.keep_tree(TreeBuilder::new().view());
    world.fails(&entry, &[empty, Handle::u64(0)], FailureCode::BadHandle, "in a tree of 0");
}

#[test]
fn entries_of_the_application_have_their_handles_already() {
    let mut world = World::new();
    let body = "(i32.add (i32.mul (i32.const 10) (call $entry (local.get $h) (i64.const 2))) (call $entry (local.get $h) (i64.const 0)))";
    assert_eq!(world.number(&plain(&number(body)), &[Handle::u64(9)]), 31);
    let past = plain("(call $entry (i32.const 0) (i64.const 3))");
    world.fails(&past, &[Handle::u64(9)], FailureCode::BadHandle, "there is no entry 3 in a tree of 3");
}

#[test]
fn blobs_are_made_of_memory() {
    let mut world = World::new();
    let blob = with_memory_and(
        "(data (i32.const 100) \"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz\")",
        "(call $blob (i32.const 100) (i32.wrap_i64 (call $read_u64 (i32.const 3) (i64.const 0))))",
    );
    let text = b"abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyz";
    for len in [0, 1, 30, 31, 52] {
        let result = world.ok(&blob, &[Handle::u64(len)]);
        assert_eq!(result, Handle::blob(&text[..len as usize]));
    }
    let stored = world.store.local(Handle::blob(text)).unwrap();
    assert_eq!(stored.bytes(), text);
}

#[test]
fn blob_u64_takes_at_most_eight_bytes() {
    let mut world = World::new();
    let blob = plain(
        "(call $blob_u64 (i64.const 0x0807060504030201) (i32.wrap_i64 (call $read_u64 (i32.const 3) (i64.const 0))))",
    );
    for len in 0..=8u64 {
        let result = world.ok(&blob, &[Handle::u64(len)]);
        let expected: Vec<u8> = (1..=len as u8).collect();
        assert_eq!(result.literal_bytes(), Some(&expected[..]));
    }
    for len in [9, 0xFFFF_FFFF] {
        world.fails(&blob, &[Handle::u64(len)], FailureCode::Trap, "blob_u64: a length of");
    }
}

#[test]
fn trees_are_made_of_handle_indices() {
    let mut world = World::new();
    let tree = with_memory(
        "(i32.store (i32.const 8) (i32.const 3)) (i32.store (i32.const 12) (call $blob_u64 (i64.const 5) (i32.const 1)))
         (i32.store (i32.const 16) (local.get $h)) (call $tree (i32.const 8) (i32.const 3))",
    );
    let argument = world.store.keep_blob(&[4; 64]);
    let call = world.call(&tree, &[argument], Limits::default());
    let application = call.handle;
    let result = world.invoker.invoke(call).result.unwrap();
    let expected: TreeBuilder = [argument, Handle::literal(&[5]).unwrap(), application].into_iter().collect();
    assert_eq!(result, expected.view().handle());
    assert_eq!(world.store.local(result).unwrap().bytes(), expected.view().as_bytes());
    let empty = with_memory("(call $tree (i32.const 65536) (i32.const 0))");
    assert_eq!(world.ok(&empty, &[]), TreeBuilder::new().view().handle());
}

#[test]
fn thunks_and_encodes_are_made_of_what_fits() {
    let mut world = World::new();
    type Make = fn(Handle) -> Option<Handle>;
    let functions: [(&str, Make); 5] = [
        ("application", Handle::application),
        ("identification", Handle::identification),
        ("strict", Handle::strict),
        ("shallow", Handle::shallow),
        ("lower", Handle::lowered),
    ];
    for (function, make) in functions {
        let codelet = plain(&format!("(call ${function} (i32.const 3))"));
        for (handle, _) in one_of_each(&world) {
            match make(handle) {
                Some(expected) => assert_eq!(world.ok(&codelet, &[handle]), expected, "{function} {handle}"),
                None => world.fails(&codelet, &[handle], FailureCode::BadHandle, function),
            }
        }
    }
}

#[test]
fn selections_take_any_target() {
    let mut world = World::new();
    let one = plain("(call $selection (i32.const 3) (i64.const 5))");
    let range = plain("(call $selection_range (i32.const 3) (i64.const 5) (i64.const -1))");
    for (target, _) in one_of_each(&world) {
        for (codelet, part) in [(&one, Part::Element(5)), (&range, Part::Range { begin: 5, end: u64::MAX })] {
            let tree = Selection { target, part }.to_tree();
            let thunk = world.ok(codelet, &[target]);
            assert_eq!(thunk, tree.view().handle().selection().unwrap());
            assert_eq!(world.store.local(thunk).unwrap().bytes(), tree.view().as_bytes());
        }
    }
}

#[test]
fn fail_ends_the_call_with_the_guests_words() {
    let mut world = World::new();
    let fail = plain("(call $fail (i32.const 3)) (i32.const 1)");
    world.fails(&fail, &[Handle::literal(b"no such word").unwrap()], FailureCode::Guest, "no such word");
    let long = world.store.keep_blob("é".repeat(5000).as_bytes());
    let fault = world.run(&fail, &[long]).result.unwrap_err();
    assert_eq!(fault.detail, "é".repeat(2048));
    let garbage = world.store.keep_blob(&[0xFF; 50]);
    world.fails(&fail, &[garbage], FailureCode::Guest, "\u{FFFD}");
}

#[test]
fn the_result_is_any_handle_of_the_table() {
    let mut world = World::new();
    let echo = plain("(i32.wrap_i64 (call $read_u64 (i32.const 4) (i64.const 0)))");
    for (handle, _) in one_of_each(&world) {
        assert_eq!(world.ok(&echo, &[handle, Handle::u64(3)]), handle);
    }
    for index in [5, 1000, 0x7FFF_FFFF, 0x8000_0000, 0xFFFF_FFFF] {
        let arguments = [Handle::u64(1), Handle::u64(index)];
        world.fails(&echo, &arguments, FailureCode::BadResult, "which is no handle");
    }
}

#[test]
fn missing_data_is_named() {
    let mut world = World::new();
    let nowhere = Handle::blob(&[9; 99]);
    let read = plain("(drop (call $read_u64 (i32.const 3) (i64.const 0))) (i32.const 1)");
    world.fails(&read, &[nowhere], FailureCode::MissingData, &nowhere.to_string());
    let tree: TreeBuilder = [nowhere].into_iter().collect();
    let tree = tree.view().handle();
    let entry = plain("(call $entry (i32.const 3) (i64.const 0))");
    world.fails(&entry, &[tree], FailureCode::MissingData, &tree.to_string());
}
