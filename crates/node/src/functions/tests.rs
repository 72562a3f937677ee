// SPDX-License-Identifier: Apache-2.0
//! Deployments without processes: codelets are functions too.
#![allow(clippy::unwrap_used)]

use gateway::FunctionError;
use objects::TreeBuilder;

use super::*;
use crate::{Node, Options};

const ECHO: &str = r#"(module (func (export "apply") (param i32) (result i32) (i32.const 3)))"#;

fn node(home: Option<&std::path::Path>) -> Arc<Node> {
    let options = Options {
        home: home.map(Into::into),
        workers: Some(1),
        memory_bytes: Some(256 << 20),
        ..Options::default()
    };
    Node::start(&options).unwrap()
}

fn tree(node: &Node, entries: &[Handle]) -> Handle {
    node.store().put_tree(entries.iter().copied().collect::<TreeBuilder>().view()).unwrap()
}

fn pairs(node: &Node, pairs: &[(&str, &str)]) -> Handle {
    let put = |text: &str| node.store().put_blob(text.as_bytes()).unwrap();
    let entries: Vec<Handle> = pairs.iter().flat_map(|(name, value)| [put(name), put(value)]).collect();
    tree(node, &entries)
}

fn deployment(node: &Node, procedure: Handle, serving: &[(&str, &str)]) -> Handle {
    let mark = Handle::literal(b"sinew:function/1").unwrap();
    let limits = Handle::literal(b"").unwrap();
    let serving = pairs(node, serving);
    tree(node, &[mark, procedure, limits, serving])
}

/// A codelet's deployment; `number` makes it another one.
fn codelet(node: &Node, number: usize) -> Handle {
    let module = node.store().put_blob(&wat::parse_str(ECHO).unwrap()).unwrap();
    deployment(node, module, &[("concurrency", &(number + 1).to_string()), ("runtime", "wasm")])
}

fn reason<T: std::fmt::Debug>(result: Result<T, FunctionError>) -> String {
    match result.unwrap_err() {
        FunctionError::Invalid(reason) | FunctionError::NotFound(reason) => reason,
        FunctionError::Store(error) => panic!("{error}"),
    }
}

#[test]
fn versions_grow_and_labels_move() {
    let home = tempfile::tempdir().unwrap();
    let first;
    {
        let node = node(Some(home.path()));
        let functions = &node.deployments;
        first = codelet(&node, 0);
        assert!(functions.deploy("echo", first).unwrap().is_changed);
        assert!(!functions.deploy("echo", first).unwrap().is_changed, "the same again");
        let second = functions.deploy("echo", codelet(&node, 1)).unwrap();
        assert_eq!((second.served.version, second.is_changed), (2, true));
        let back = functions.roll_back("echo", None).unwrap();
        assert_eq!((back.served.version, back.served.deployment), (1, first));
        assert!(reason(functions.roll_back("echo", None)).contains("no such version"));
        assert_eq!(functions.roll_back("echo", Some(2)).unwrap().served.version, 2);
        functions.roll_back("echo", Some(1)).unwrap();
        // The number of a version is never given again.
        assert_eq!(functions.deploy("echo", codelet(&node, 2)).unwrap().served.version, 3);
        functions.roll_back("echo", Some(1)).unwrap();
        node.shut_down();
    }
    let node = node(Some(home.path()));
    let served = node.deployments.served("echo").unwrap();
    assert_eq!((served.version, served.deployment, served.is_codelet), (1, first, true));
    let versions: Vec<u64> =
        node.deployments.details("echo").unwrap().versions.iter().map(|(version, _)| *version).collect();
    assert_eq!(versions, [3, 2, 1]);
    node.deployments.remove("echo").unwrap();
    assert!(node.deployments.served("echo").is_none() && node.store().labels().unwrap().is_empty());
    assert!(reason(node.deployments.remove("echo")).contains("echo"));
}

#[test]
fn old_versions_go_when_there_are_too_many() {
    let node = node(None);
    for number in 0..VERSIONS_MAX + 5 {
        node.deployments.deploy("echo", codelet(&node, number)).unwrap();
    }
    let versions = node.deployments.details("echo").unwrap().versions;
    assert_eq!(versions.len(), VERSIONS_MAX);
    assert_eq!((versions[0].0, versions.last().unwrap().0), (25, 6));
}

#[test]
fn what_breaks_the_specification_is_refused_and_changes_nothing() {
    let node = node(None);
    let good = codelet(&node, 0);
    node.deployments.deploy("echo", good).unwrap();
    let module = node.store().put_blob(&wat::parse_str(ECHO).unwrap()).unwrap();
    let text = node.store().put_blob(b"this is no module, but text that is long enough").unwrap();
    let mark = Handle::literal(b"sinew:function/1").unwrap();
    let none = Handle::literal(b"").unwrap();
    let empty = tree(&node, &[]);
    let python = Handle::literal(b"sinew:python").unwrap();
    let cobol = Handle::literal(b"sinew:cobol").unwrap();
    let image = |runtime, settings| tree(&node, &[runtime, empty, empty, settings]);
    for (wrong, why) in [
        (text, "no tree"),
        (empty, "[mark"),
        (tree(&node, &[mark, module, none]), "[mark"),
        (tree(&node, &[none, module, none, empty]), "first entry"),
        (tree(&node, &[mark, module, mark, empty]), "limits"),
        (tree(&node, &[mark, module, none, none]), "no tree"),
        (deployment(&node, text, &[]), "no Wasm module"),
        (deployment(&node, Handle::blob(&[7; 99]), &[]), "not on this node"),
        (deployment(&node, module, &[("concurrency", "0")]), "concurrency"),
        (deployment(&node, module, &[("concurrency", "many")]), "concurrency"),
        (deployment(&node, module, &[("pure", "maybe")]), "pure"),
        (deployment(&node, module, &[("runtime", "python")]), "runtime"),
        (deployment(&node, module, &[("colour", "red")]), "colour"),
        (deployment(&node, module, &[("route.0", "GET /x")]), "routes"),
        (deployment(&node, image(cobol, empty), &[]), "cobol"),
        (deployment(&node, image(python, pairs(&node, &[("timeout-ms", "0")])), &[]), "timeout-ms"),
        (deployment(&node, image(python, none), &[]), "trees"),
        (deployment(&node, image(none, empty), &[]), "names no runtime"),
    ] {
        let said = reason(node.deployments.deploy("echo", wrong));
        assert!(said.contains(why), "{why}: {said}");
    }
    for name in ["", "Echo", "1st", "a_b", "a/b", "-a", &"a".repeat(64)] {
        assert!(reason(node.deployments.deploy(name, good)).contains("no name"), "{name}");
    }
    assert_eq!(node.deployments.served("echo").unwrap().deployment, good);
    assert_eq!(node.store().labels().unwrap().len(), 2);
}

#[test]
fn a_module_that_does_not_compile_is_refused() {
    let node = node(None);
    let module = node.store().put_blob(b"\0asm\x01\0\0\0 and then nothing that is right").unwrap();
    let refused = node.deployments.deploy("echo", deployment(&node, module, &[]));
    assert!(reason(refused).contains("does not load"));
    assert!(node.deployments.served("echo").is_none() && node.store().labels().unwrap().is_empty());
}
