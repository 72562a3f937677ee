// SPDX-License-Identifier: Apache-2.0
//! Reading what the examples show.

#![allow(clippy::unwrap_used)]

use super::*;

#[test]
fn commands_and_outputs_are_paired() {
    let text = "# x\n$ not this\n```console\n$ a | b\n1\n2\n$ c\n```\n```text\n$ nor this\n```\n";
    let shown = |command: &str, output: &str| Shown { command: command.into(), output: output.into() };
    assert_eq!(commands(text).unwrap(), [shown("a | b", "1\n2"), shown("c", "")]);
    assert!(commands("```console\nno command\n```\n").is_err());
}

#[test]
fn the_paper_s_procedures_have_examples_with_commands() {
    let files = files(&layout::root().join("examples")).unwrap();
    let names: Vec<_> = files.iter().filter_map(|file| file.parent()?.file_name()?.to_str()).collect();
    assert_eq!(
        names,
        ["calls", "curry", "fib", "find-key", "functions", "get-file", "if", "map", "map-reduce"]
    );
    // Containers need a node of root's: the end-to-end tests run that one.
    for file in files.into_iter().filter(|file| !file.ends_with("calls/README.md")) {
        assert!(!commands(&fs::read_to_string(&file).unwrap()).unwrap().is_empty(), "{}", file.display());
    }
}
