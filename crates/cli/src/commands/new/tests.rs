// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use super::*;
use crate::manifest;

#[test]
fn what_is_written_is_a_function_of_that_name() {
    for (templates, runtime) in [(PYTHON, "python"), (NODE, "node"), (WASM, "wasm")] {
        let [(file, text), (source, code), _] = templates;
        let functions = manifest::parse(&personal(file, text, "greet"), &|_| None).unwrap();
        assert_eq!((functions[0].name.as_str(), functions[0].runtime.name()), ("greet", runtime));
        assert!(!personal(source, code, "greet").contains("SPDX"));
    }
    assert!(readme("greet").contains("sinew invoke greet -d '{\"name\": \"Ada\"}'"));
}

#[test]
fn nothing_is_overwritten() {
    let root = tempfile::tempdir().unwrap();
    let files = [("a", String::new()), ("b", String::new())];
    assert!(refuse_to_overwrite(root.path(), &files).is_ok());
    fs::write(root.path().join("b"), "mine").unwrap();
    let error = refuse_to_overwrite(root.path(), &files).unwrap_err();
    assert!(error.to_string().contains("b is there already"));
    assert!(write_new(&root.path().join("b"), "theirs").is_err());
    assert_eq!(fs::read(root.path().join("b")).unwrap(), b"mine");
}
