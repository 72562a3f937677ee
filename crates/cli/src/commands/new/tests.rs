// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use super::*;
use crate::manifest;

#[test]
fn what_is_written_is_a_function_of_that_name() {
    for language in Language::value_variants() {
        let files = files(*language, "greet");
        let text = |wanted: &str| files.iter().find(|(name, _)| *name == wanted).unwrap().1.clone();
        let functions = manifest::parse(&text("sinew.toml"), &|_| None).unwrap();
        let function = &functions[0];
        let expected = match language {
            Language::Python => "python",
            Language::Node => "node",
            Language::Java => "java",
            Language::Wasm => "wasm",
            _ => "executable",
        };
        assert_eq!((function.name.as_str(), function.runtime.name()), ("greet", expected));
        assert!(files.iter().all(|(_, text)| !text.contains("SPDX")), "{language:?}");
        assert!(text(".gitignore").starts_with(".sinew/\n"));
        assert!(text("README.md").contains("sinew dev"));
        // What a build writes is not what it watches.
        if let Some(build) = &function.build {
            assert!(!build.watch.is_empty() && build.output.is_some(), "{language:?}");
        }
    }
}

#[test]
fn scripts_are_programs() {
    let root = tempfile::tempdir().unwrap();
    let mode = |name: &str, text: &str| {
        let path = root.path().join(name);
        write_new(&path, text).unwrap();
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    };
    assert_eq!(mode("a", "#!/bin/sh\n"), 0o755);
    assert_eq!(mode("b", "text"), 0o644);
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
