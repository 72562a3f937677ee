// SPDX-License-Identifier: Apache-2.0
//! Everything that `objects` decodes, from bytes that a stranger wrote.
//!
//! The first byte chooses the decoder, the rest is its input. Nothing may
//! panic, and whatever is accepted must encode to the bytes it came from:
//! then no two encodings have one meaning.

use objects::{
    Application, BundleReader, BundleRecord, BundleWriter, FETCH_PROCEDURE, Failure, FailureCode, Handle,
    Limits, Selection, Source, TreeBuilder, TreeView,
};

/// One input.
pub fn run(input: &[u8]) {
    let Some((decoder, data)) = input.split_first() else { return };
    match decoder % 6 {
        0 => handles(data),
        1 => text(data),
        2 => tree(data),
        3 => bundle(data),
        4 => composed(data),
        _ => source(data),
    }
}

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

/// A tree whose entries are made of two bytes each, what and tagged how, so
/// that layouts are met by chance.
fn composed(data: &[u8]) {
    let mut entries = TreeBuilder::new();
    for [what, how] in data.as_chunks::<2>().0.iter().take(64) {
        let number = usize::from(what / 6);
        let object = match what % 6 {
            0 => Handle::blob(FailureCode::ALL[number % FailureCode::ALL.len()].as_str().as_bytes()),
            1 => Handle::blob(&(number as u64).to_le_bytes()[..usize::from(how / 8) % 9]),
            2 => Handle::u64(number as u64),
            3 => Limits { fuel: number as u64, ..Limits::default() }.handle().expect("it fits"),
            4 => Handle::blob(&[*what; 40]),
            _ => entries.view().handle(),
        };
        let tagged = match how % 8 {
            0 => object.lowered(),
            1 => object.identification(),
            2 => object.identification().and_then(Handle::strict),
            3 => object.identification().and_then(Handle::shallow),
            4 => object.application(),
            5 => object.application().and_then(Handle::strict),
            6 => object.selection(),
            _ => None,
        };
        entries.push(tagged.unwrap_or(object));
    }
    tree(&entries.into_bytes());
}

/// The arguments of a source, a zero byte between two.
fn source(data: &[u8]) {
    let blobs: Vec<&[u8]> = data.split(|byte| *byte == 0).collect();
    let head = [Handle::blob(b""), Handle::blob(FETCH_PROCEDURE)];
    let arguments = blobs.iter().map(|blob| match blob.strip_prefix(b"ref ") {
        Some(content) => Handle::blob(content).lowered().expect("a blob has a ref"),
        None => Handle::blob(blob),
    });
    let tree: TreeBuilder = head.into_iter().chain(arguments).collect();
    let application = Application::from_tree(tree.view()).expect("it has limits and procedure");
    let known = |blob: Handle| blobs.iter().find(|known| Handle::blob(known) == blob);
    if let Ok(source) = Source::of_application(&application, known) {
        assert_eq!(source.to_tree().0.view(), tree.view());
        assert_eq!(source.check(), Ok(()));
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
