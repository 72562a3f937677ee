// SPDX-License-Identifier: Apache-2.0
//! `make demo`: the platform's main job on real input, from nothing.
//!
//! Builds the release binary and the codelets, fetches the corpus, starts a
//! node on embedded storage, counts words and a three-letter string as a
//! map-reduce, checks the counts against `tr` and `grep`, and does it again as
//! a memo hit. CPython for WASI counts the lines with numpy; a workflow hands objects over. The node is a child of this process and ends with it.

mod finra;
mod independent;
mod python;

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::node::Node;
use crate::progress::{mebibytes, note, seconds, step};
use crate::{corpus, guests, install, layout, process};
use independent::Counts;

/// The string whose occurrences are counted.
const NEEDLE: &str = "the";
/// The label of the list of shards.
const LABEL: &str = "corpus";
/// Bytes of a shard: small enough to spread over cores, large enough to matter.
/// Shards end behind a line feed, so that no word and no line is cut.
const SHARD: &str = "4MiB";

/// `cargo xtask demo`.
pub(crate) fn run() -> anyhow::Result<()> {
    let begun = Instant::now();
    install::all()?;
    step("building the release binary", || {
        process::run(process::cargo().args(["build", "--quiet", "--release", "-p", "cli"]))
    })?;
    step("building codelets", guests::build)?;
    let corpus = corpus::make()?;
    note(format!("{}: {}", corpus.path.display(), mebibytes(corpus.bytes)));
    // A new home each time: an old one remembers the counts already.
    let home = layout::demo().join("home");
    ensure!(
        std::os::unix::net::UnixStream::connect(home.join("node.sock")).is_err(),
        "a node runs on {}, which this demo begins anew; stop it first (Ctrl-C, or `kill` its pid)",
        home.display()
    );
    layout::remove(&home)?;
    let node = step("starting a node", || Node::start(&layout::sinew(), &home))?;
    note(format!("ready on http://{}, data in {}", node.address(), home.display()));
    step("storing the corpus in shards, synced to disk", || {
        let mut put = node.sinew();
        put.args(["put", "--shards", SHARD, "--label", LABEL, "--progress", "-o", "json"]).arg(&corpus.path);
        process::output(&mut put).map(drop)
    })?;

    let expression = expression(NEEDLE);
    let first = step("counting in the node", || count(&node, &expression))?;
    let expected = step("counting with tr and grep", || independent::count(&corpus.path, NEEDLE))?;
    ensure!(
        first.counts == expected,
        "the counts differ: the node says {:?}, tr and grep say {expected:?}",
        first.counts
    );
    let again = step("counting in the node again", || count(&node, &expression))?;
    ensure!(again.counts == first.counts, "the second run differs: {:?}", again.counts);
    report(&corpus, &first, &again);
    python::count(&node, &corpus.path, first.counts.lines)?;
    functions(&node)?;
    finra::run(&node)?;
    println!("\nall of it took {}; the node ends with this program.", seconds(begun.elapsed()));
    suggest(&node, &first.handle);
    Ok(())
}

/// Map `count-string` with its needle bound over the shards, and add up. The
/// list is given as a ref: shards are needed only where they are counted.
fn expression(needle: &str) -> String {
    let wasm = |name: &str| format!("@target/guests/{name}.wasm");
    format!(
        "{}([{}, \"{needle}\"], {}, ref(#{LABEL}))",
        wasm("map-reduce"),
        wasm("count-string"),
        wasm("merge-counts")
    )
}

struct Run {
    counts: Counts,
    /// As the client sees it, its own start included.
    seen: Duration,
    /// In the node.
    evaluated: Duration,
    handle: String,
    applied: u64,
    is_memo_hit: bool,
}

fn count(node: &Node, expression: &str) -> anyhow::Result<Run> {
    let begun = Instant::now();
    let answer = node.json(&["eval", expression, "--progress", "-o", "json"])?;
    let seen = begun.elapsed();
    let field = |key: &str| answer.get(key).with_context(|| format!("eval said nothing of {key}: {answer}"));
    let handle = field("result")?.as_str().context("the result is no text")?.to_owned();
    let bytes = process::output_bytes(node.sinew().args(["cat", &handle]))?;
    Ok(Run {
        counts: Counts::decode(&bytes).with_context(|| format!("{handle} is not four numbers"))?,
        seen,
        evaluated: Duration::from_nanos(field("wall_ns")?.as_u64().unwrap_or_default()),
        applied: field("applied")?.as_u64().unwrap_or_default(),
        is_memo_hit: field("memo_hit")?.as_bool().unwrap_or_default(),
        handle,
    })
}

fn report(corpus: &corpus::Corpus, first: &Run, again: &Run) {
    let Counts { occurrences, words, lines, bytes } = first.counts;
    println!(
        "\n{:>12}  words\n{occurrences:>12}  times \"{NEEDLE}\"\n{lines:>12}  lines\n{bytes:>12}  bytes",
        words
    );
    println!("checked: equal (tr, grep, wc)\n");
    let rate = corpus.bytes as f64 / first.evaluated.as_secs_f64() / 1e9;
    let line = |name: &str, run: &Run| {
        let hit = if run.is_memo_hit { "memo hit" } else { "computed" };
        println!(
            "{name:<11} {:>9} in the node, {:>9} with the client's start; {} applications, {hit}",
            seconds(run.evaluated),
            seconds(run.seen),
            run.applied
        );
    };
    line("first run", first);
    line("second run", again);
    println!("{:<11} {rate:.2} GB/s in the first run", "");
}

/// Writes a function for each runtime, deploys it, calls it twice, and tells
/// how it went.
fn functions(node: &Node) -> anyhow::Result<()> {
    println!();
    let is_root = process::output(process::command("id").arg("-u"))? == "0";
    let written = layout::demo().join("functions");
    layout::remove(&written)?;
    for runtime in ["wasm", "python", "node", "go"] {
        if runtime != "wasm" && !is_root {
            note(format!("no function in {runtime}: forking into containers takes the rights of root"));
            continue;
        }
        if !has_interpreter(runtime) {
            note(format!("no function in {runtime}: its interpreter or compiler is missing, or too old"));
            continue;
        }
        let (function, folder) = (format!("hello-{runtime}"), written.join(runtime));
        step(&format!("writing and deploying {function}, with `sinew new` and `sinew deploy`"), || {
            let mut new = node.sinew();
            new.args(["new", &function, "--language", runtime, "--to"]).arg(&folder);
            process::output(&mut new)?;
            process::output(node.sinew().arg("deploy").arg(&folder)).map(drop)
        })?;
        let function = function.as_str();
        let call = || process::output(node.sinew().args(["invoke", function, "-d", r#"{"name": "Ada"}"#]));
        let (said, again) = (call()?, call()?);
        ensure!(said.contains("Ada") && said == again, "{function} answered {said:?}, then {again:?}");
        let calls = process::output(node.sinew().args(["logs", function, "-o", "json"]))?;
        for line in calls.lines() {
            let call: serde_json::Value = serde_json::from_str(line).context("logs said no JSON")?;
            let spent = Duration::from_micros(call["total_us"].as_u64().unwrap_or_default());
            println!("{:>12}  {}", seconds(spent), call["start"].as_str().unwrap_or("-"));
        }
    }
    Ok(())
}

/// Whether the interpreter of a runtime, or its compiler, is there and new enough.
fn has_interpreter(runtime: &str) -> bool {
    let (program, arguments): (_, &[&str]) = match runtime {
        "python" => ("python3", &["-c", "import sys; sys.exit(sys.version_info < (3, 11))"]),
        "node" => ("node", &["-e", "process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)"]),
        "go" => ("go", &["version"]),
        _ => return true,
    };
    process::succeeds(process::command(program).args(arguments))
}

/// Three things to do next, ready to be copied.
fn suggest(node: &Node, handle: &str) {
    let bold = |text: &str| {
        if std::io::stdout().is_terminal() { format!("\x1b[1m{text}\x1b[0m") } else { text.to_owned() }
    };
    let home = node.home().strip_prefix(layout::root()).unwrap_or(node.home()).display().to_string();
    let sinew = layout::sinew();
    let sinew = sinew.strip_prefix(layout::root()).unwrap_or(&sinew).display().to_string();
    println!("try next (the first starts the node again, on the same data):");
    println!("  {}", bold(&format!("export SINEW_HOME={home}; {sinew} up &")));
    println!("  {}", bold(&format!("{sinew} eval '{}' --as raw | od -v -A n -t u8 -w8", expression("GPL"))));
    println!("  {}", bold(&format!("{sinew} explain {handle}")));
}

#[cfg(test)]
mod tests;
