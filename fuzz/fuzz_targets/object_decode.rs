// SPDX-License-Identifier: Apache-2.0
//! Everything that `objects` decodes, from bytes that a stranger wrote.
//!
//! The first byte chooses the decoder, the rest is its input. Nothing may
//! panic, and whatever is accepted must encode to the bytes it came from:
//! then no two encodings have one meaning.

#![no_main]

use libfuzzer_sys::fuzz_target;
use objects::{Application, BundleReader, BundleRecord, BundleWriter, Failure, Handle, Limits, Selection, TreeView};

fuzz_target!(|input: &[u8]| {
    let Some((decoder, data)) = input.split_first() else { return };
    match decoder % 4 {
        0 => handles(data),
        1 => text(data),
        2 => tree(data),
        _ => bundle(data),
    }
});

fn handles(data: &[u8]) {
    for chunk in data.as_chunks::<{ Handle::LEN }>().0 {
        if let Ok(handle) = Handle::from_bytes(*chunk) {
            assert_eq!(handle.as_bytes(), chunk);
            check_handle(handle);
        }
    }
}

/// What holds for each handle: its text comes back, its conversions are handles.
fn check_handle(handle: Handle) {
    assert_eq!(handle.to_string().parse(), Ok(handle));
    let roles = [handle.is_value(), handle.is_thunk(), handle.is_encode()];
    assert_eq!(roles.into_iter().filter(|&role| role).count(), 1);
    let converted = [
        handle.lowered(),
        handle.lifted(),
        handle.application(),
        handle.identification(),
        handle.selection(),
        handle.strict(),
        handle.shallow(),
        handle.thunk(),
        Some(handle.definition()),
        Some(handle.plain_tree()),
    ];
    for other in converted.into_iter().flatten() {
        assert_eq!(Handle::from_bytes(*other.as_bytes()), Ok(other));
        assert_eq!(other.size(), handle.size());
    }
    if let Ok(limits) = Limits::from_handle(handle) {
        let again = limits.handle().expect("limits that were read can be written");
        assert!(handle == again || handle.size() == 0 && limits == Limits::default());
    }
}

fn text(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(handle) = text.parse::<Handle>() {
        assert_eq!(handle.to_string(), text);
        assert_eq!(Handle::from_bytes(*handle.as_bytes()), Ok(handle));
    }
}

fn tree(data: &[u8]) {
    let Ok(tree) = TreeView::from_bytes(data) else { return };
    assert_eq!(tree.as_bytes(), data);
    let handle = tree.handle();
    check_handle(handle);
    assert_ne!(Handle::blob(data).hash_bytes(), handle.hash_bytes());
    tree.iter().for_each(check_handle);
    if let Ok(selection) = Selection::from_tree(tree) {
        assert_eq!(selection.to_tree().view(), tree);
    }
    if let Ok(failure) = Failure::from_tree(tree) {
        let (marked, again) = failure.to_tree();
        assert_eq!(again.view(), tree);
        assert_eq!(marked.plain_tree(), handle);
    }
    if let Ok(application) = Application::from_tree(tree) {
        check_handle(application.procedure);
        // Any tree will do for the curried one: nothing says that it is at hand.
        if let Ok(uncurried) = application.uncurried(tree) {
            assert_eq!(uncurried.len(), 2 * tree.len() - 1);
            assert!(TreeView::from_bytes(uncurried.view().as_bytes()).is_ok());
        }
    }
}

fn bundle(data: &[u8]) {
    let Ok(reader) = BundleReader::new(data) else { return };
    let Ok(records) = reader.collect::<Result<Vec<_>, _>>() else { return };
    let mut writer = BundleWriter::new();
    for record in &records {
        match record {
            // A literal needs no record, so that the writer makes none.
            BundleRecord::Blob(content) if Handle::literal(content).is_some() => return,
            BundleRecord::Blob(content) => drop(writer.blob(content)),
            BundleRecord::Tree(tree) => drop(writer.tree(*tree)),
            BundleRecord::Goal(goal) => return assert_eq!(writer.goal(*goal), data),
        }
    }
    assert_eq!(writer.finish(), data);
}
