// SPDX-License-Identifier: Apache-2.0
//! Who is named, and with which texts.

#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn what_is_linked_is_named_with_the_texts_in_it_and_what_only_builds_or_tests_is_not() {
    let all = all().unwrap();
    for named in ["\nwasmtime 48.", "\nhyper 1.", "\nring 0.17.", "\nlibmimalloc-sys 0.1."] {
        assert!(all.contains(named), "{named:?} is missing");
    }
    // Tests use the first, a build script the second, and ours need no notice.
    for left_out in ["\nproptest ", "\ncc 1.", "\ngateway 0.1", "\nxtask "] {
        assert!(!all.contains(left_out), "{left_out:?} is named");
    }
    assert_eq!(all.matches("Copyright (c) 2019 Jack O'Connor\n\nPermission").count(), 1);
    let line = "-".repeat(100);
    for (name, text) in [
        ("blake2b_simd 1", "AUTHORS OR\nCOPYRIGHT HOLDERS BE LIABLE"),
        ("pulley-interpreter 48", "LLVM Exceptions"),
    ] {
        let mut its = all.split(&line).skip(1).filter(|part| part.contains(name));
        assert!(its.any(|part| part.contains(text)), "{name} is without a text");
    }
    for words in ["Permission is hereby granted", "http://www.apache.org/licenses/", "Daan Leijen"] {
        assert!(all.contains(words), "{words:?} is missing");
    }
}

#[test]
fn every_package_says_its_licence() {
    let metadata = licences::metadata(&["--filter-platform", &process::host().unwrap()]).unwrap();
    let linked = linked(&metadata, "cli").unwrap();
    assert!(linked.len() > 100, "{}", linked.len());
    assert!(linked.iter().all(|package| !package.licence.is_empty()));
    assert!(super::linked(&metadata, "no-such-package").is_err());
}
