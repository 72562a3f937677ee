// SPDX-License-Identifier: Apache-2.0
//! What a node does while its code is counted: functions in each of its ways, at full load
//! and at less, workflows, calls that wait on the disk, evaluations, files in and out.
//!
//! What is left out here is laid out as what hardly ever happens. So the parts are
//! about what nodes do, not what a bench measures.

use std::path::Path;

use anyhow::ensure;

use crate::node::Node;
use crate::progress::step;
use crate::{examples, layout, process};

/// How long each function is loaded, so that what is counted is not its beginning.
const LOADED: &str = "6s";
/// For a test of all this.
const LOADED_BRIEFLY: &str = "200ms";
const EVENT: &str = r#"{"name":"Ada"}"#;
const STEPS: &str = r#"{"steps":2000}"#;
/// Calls that wait on the disk.
const DEFERRED: usize = 20;
const LOOKS: &[&str] =
    &["list", "label", "logs hello-js", "describe hello-js", "workflow list", "fsck", "gc"];

/// What the node of this program is asked for, once the codelets are built.
pub(super) fn run(program: &Path) -> anyhow::Result<()> {
    ask_all(program, LOADED)?;
    step("examples", || examples::check(program, &layout::target().join("tuned/home")))
}

/// All but the examples, and in seconds: shows that a release can be made of what is here.
pub(crate) fn briefly(program: &Path) -> anyhow::Result<()> {
    ask_all(program, LOADED_BRIEFLY)
}

fn ask_all(program: &Path, loaded: &str) -> anyhow::Result<()> {
    let home = layout::target().join("tuned/home");
    layout::remove(&home)?;
    let node = Node::start(program, &home)?;
    step("functions", || functions(&node, loaded))?;
    step("workflows", || {
        ["steps", "steps-sent"].iter().try_for_each(|name| ask(&node, &["invoke", name, "-d", STEPS]))
    })?;
    step("calls that wait on the disk", || {
        (0..DEFERRED).try_for_each(|_| ask(&node, &["invoke", "hello-py", "--async", "-d", EVENT]))
    })?;
    step("evaluations", || ask(&node, &["bench", "--rounds", "20"]))?;
    step("files", || files(&node, program))?;
    step("what people look at", || {
        LOOKS.iter().try_for_each(|words| ask(&node, &words.split(' ').collect::<Vec<_>>()))
    })?;
    // Its end writes what it has counted.
    node.end()?;
    layout::remove(&home)
}

/// Runs a command of the command line; what it prints is dropped.
fn ask(node: &Node, words: &[&str]) -> anyhow::Result<()> {
    process::output(node.sinew().args(words)).map(drop)
}

/// Deploys and calls each kind of function.
fn functions(node: &Node, loaded: &str) -> anyhow::Result<()> {
    let folder = layout::root().join("xtask/src/release/training");
    process::output(node.sinew().arg("deploy").current_dir(folder))?;
    let load = |name: &str, more: &[&str]| {
        let words = [&["bench", name, "-z", loaded, "-d", EVENT], more].concat();
        ask(node, &words)
    };
    for name in ["hello-js", "hello-py", "many-js", "fetch-js", "asgi-py", "pure-py"] {
        load(name, &[])?;
    }
    // Also where there is time between requests.
    for name in ["hello-js", "hello-py"] {
        load(name, &["--rate", "2000"])?;
    }
    for name in ["calls-js", "calls-py", "executable"] {
        load(name, &["-c", "4"])?;
    }
    let said = process::output(node.sinew().args(["invoke", "calls-js", "-d", EVENT]))?;
    ensure!(said.contains("Hello, Ada"), "a function that was to be counted says {said:?}");
    Ok(())
}

/// Puts a large file and many small ones, and gets them back.
fn files(node: &Node, large: &Path) -> anyhow::Result<()> {
    process::output(node.sinew().args(["put", "--label", "large"]).arg(large))?;
    let small = layout::root().join("docs");
    process::output(node.sinew().args(["put", "--tree", "--label", "small"]).arg(small))?;
    process::output_bytes(node.sinew().args(["get", "large"]))?;
    ask(node, &["ls", "small"])
}
