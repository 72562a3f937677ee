// SPDX-License-Identifier: Apache-2.0
//! From the request to the first line of a function, in a container that
//! nobody was in before, against other ways to get there.
//!
//! All begin when the request is made and end where the function reads the
//! same clock. The one in Python uses numpy and pandas, the one in JavaScript
//! two of Node's own modules; the ways alternate.

mod brought;
mod javascript;

use std::os::fd::AsRawFd as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use objects::{Handle, Limits, TreeBuilder};
use sandbox::process::{Functions, FunctionsOptions, Language, Runtime, RuntimeOptions};
use sandbox::{Call, Invoked, Sandbox as _, Spec};
use store::Store;

use crate::figures::Report;

const ROUNDS: usize = 120;
/// The slow ways are measured in every so many rounds.
const SLOW_EVERY: usize = 6;
/// Of functions that bring their packages.
const BROUGHT_ROUNDS: usize = 60;
const PACKAGES: [&str; 2] = ["numpy==2.2.6", "pandas==2.3.3"];

/// The first line of the handler reads the clock.
const SOURCE: &str = "import time\nimport numpy\nimport pandas\n\
    def apply():\n    started = time.monotonic_ns()\n    return str(started).encode()\n";
const SCRIPT: &str = "import time\nimport numpy\nimport pandas\n\
    def apply():\n    started = time.monotonic_ns()\n    return str(started)\nprint(apply(), flush=True)\n";

/// Threads that multiply matrices in an instance, and random numbers.
const MATRICES: &str = "import numpy\nfrom concurrent.futures import ThreadPoolExecutor\n\
    def apply():\n    a = numpy.ones((400, 400))\n    with ThreadPoolExecutor(4) as pool:\n\
    \x20       sums = list(pool.map(lambda _: float((a @ a).sum()), range(8)))\n\
    \x20   return repr((set(sums), numpy.random.random())).encode()\n";

/// Functions of one language on one store.
pub(crate) struct Node {
    store: Arc<Store>,
    pub(crate) functions: Functions,
    /// How many instances are to wait.
    blanks: usize,
}

/// One start, in nanoseconds: of creating, and until the first line.
struct Start {
    created: f64,
    first_line: f64,
    /// Until the result was here.
    answered: f64,
}

pub(crate) fn options(python: &Path, ready: usize) -> FunctionsOptions {
    FunctionsOptions {
        interpreter: python.to_owned(),
        imports: vec!["numpy".to_owned(), "pandas".to_owned()],
        ready,
        ..FunctionsOptions::new(Language::Python)
    }
}

fn new_store() -> anyhow::Result<Arc<Store>> {
    let options = store::Options { home: None, memory_bytes: 1 << 28, relations_bytes: 1 << 20 };
    Ok(Arc::new(Store::open(options)?))
}

impl Node {
    pub(crate) fn contained(python: &Path, ready: usize) -> anyhow::Result<Self> {
        Self::with(options(python, ready))
    }

    fn with(options: FunctionsOptions) -> anyhow::Result<Self> {
        let store = new_store()?;
        let runtime = Runtime::new(RuntimeOptions {
            cgroup_name: format!(
                "sinew-bench-{}-{}-{}",
                options.language.name(),
                options.ready,
                options.blanks
            ),
            ..RuntimeOptions::default()
        })?;
        let blanks = options.blanks;
        Ok(Self { blanks, functions: Functions::new(options, runtime, store.clone())?, store })
    }

    fn uncontained(options: FunctionsOptions) -> anyhow::Result<Self> {
        let store = new_store()?;
        Ok(Self { blanks: 0, functions: Functions::uncontained(options, store.clone())?, store })
    }

    fn bare(python: &Path) -> anyhow::Result<Self> {
        Self::uncontained(options(python, 0))
    }

    pub(crate) fn call(&self, source: &str) -> anyhow::Result<(Spec, Call)> {
        let (procedure, limits) = (self.store.keep_blob(source.as_bytes()), Limits::default());
        let limits_handle: Handle = limits.handle().context("limits out of range")?;
        let tree: TreeBuilder = [limits_handle, procedure].into_iter().collect();
        let handle = self.store.keep_tree(tree.view());
        let application = self.store.local(handle).context("a tree was not kept")?;
        Ok((Spec { procedure, limits }, Call::new(application, handle, limits, procedure)))
    }

    /// What a function returns that is called once.
    fn once(&self, source: &str) -> anyhow::Result<Vec<u8>> {
        let (spec, call) = self.call(source)?;
        let id = self.functions.create(&[spec]).pop().context("no answer")??;
        self.functions.start(&[id]).pop().context("no answer")??;
        let Invoked::Done(outcome) = self.functions.invoke(id, call)?;
        self.functions.kill(&[id]);
        self.functions.delete(&[id]);
        let result = outcome.result.map_err(|fault| anyhow::anyhow!("the function failed: {fault}"))?;
        if let Some(bytes) = result.literal_bytes() {
            return Ok(bytes.to_vec());
        }
        Ok(self.store.local(result).context("no result")?.bytes().to_vec())
    }

    /// Libraries work in an instance, and draw other numbers in each.
    fn check(&self) -> anyhow::Result<()> {
        let (one, other) = (self.once(MATRICES)?, self.once(MATRICES)?);
        ensure!(one.starts_with(b"({64000000.0}, "), "{}", String::from_utf8_lossy(&one));
        ensure!(one != other, "two instances draw the same random numbers");
        Ok(())
    }

    /// One start of a new instance, which is taken away again.
    fn start(&self, source: &str) -> anyhow::Result<Start> {
        let (spec, call) = self.call(source)?;
        let begun = linux::monotonic_ns();
        let id = self.functions.create(&[spec]).pop().context("no answer")??;
        self.functions.start(&[id]).pop().context("no answer")??;
        let created = linux::monotonic_ns();
        let Invoked::Done(outcome) = self.functions.invoke(id, call)?;
        let answered = linux::monotonic_ns();
        let result = outcome.result.map_err(|fault| anyhow::anyhow!("the function failed: {fault}"))?;
        let bytes = match result.literal_bytes() {
            Some(bytes) => bytes.to_vec(),
            None => self.store.local(result).context("no result")?.bytes().to_vec(),
        };
        let first_line: u64 = std::str::from_utf8(&bytes)?.parse()?;
        self.functions.kill(&[id]);
        self.functions.delete(&[id]);
        let since = |time: u64| (time - begun) as f64;
        Ok(Start { created: since(created), first_line: since(first_line), answered: since(answered) })
    }
}

/// A start by a command that prints the time of its first line.
fn command(command: &mut Command) -> anyhow::Result<f64> {
    let begun = linux::monotonic_ns();
    let output = command.stdin(Stdio::null()).output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let first_line: u64 = String::from_utf8(output.stdout)?.trim().parse()?;
    Ok((first_line - begun) as f64)
}

/// An OCI bundle that sees the host's programs and the interpreter.
pub(crate) struct Bundle {
    directory: tempfile::TempDir,
    count: usize,
}

impl Bundle {
    #[expect(clippy::disallowed_methods, reason = "the peer is a program of its own")]
    pub(crate) fn new(interpreter: &Path, script: (&str, &str), folders: &[PathBuf]) -> anyhow::Result<Self> {
        let (name, source) = script;
        let directory = tempfile::tempdir()?;
        std::fs::create_dir(directory.path().join("rootfs"))?;
        std::fs::write(directory.path().join("rootfs").join(name), source)?;
        let made = Command::new("runc").arg("spec").current_dir(&directory).output();
        let made = made.context("runc cannot be run; apt-get install runc")?;
        ensure!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let path = directory.path().join("config.json");
        let mut config: serde_json::Value = serde_json::from_slice(&std::fs::read(&path)?)?;
        config["process"]["terminal"] = false.into();
        config["process"]["args"] = serde_json::json!([interpreter, format!("/{name}")]);
        config["process"]["env"] = serde_json::json!(["PATH=/usr/bin:/bin"]);
        let mounts = config["mounts"].as_array_mut().context("no mounts")?;
        for seen in folders {
            mounts.push(serde_json::json!({
                "destination": seen, "source": seen, "type": "bind", "options": ["rbind", "ro"],
            }));
        }
        std::fs::write(path, serde_json::to_vec(&config)?)?;
        Ok(Self { directory, count: 0 })
    }

    #[expect(clippy::disallowed_methods, reason = "starting containers is what is measured")]
    /// Nanoseconds from here to what it printed.
    pub(crate) fn start(&mut self) -> anyhow::Result<f64> {
        self.count += 1;
        let id = format!("sinew-bench-{}-{}", std::process::id(), self.count);
        command(Command::new("runc").args(["run", "--bundle"]).arg(self.directory.path()).arg(id))
    }
}

/// The host's programs, and the directories of the interpreter.
#[expect(clippy::disallowed_methods, reason = "the interpreter is asked where it lies")]
pub(crate) fn seen(python: &Path) -> anyhow::Result<Vec<PathBuf>> {
    let output = Command::new(python)
        .args(["-c", "import sys; print(sys.prefix); print(sys.base_prefix)"])
        .output()?;
    let mut seen: Vec<PathBuf> = ["/usr", "/bin", "/lib", "/lib64"].map(PathBuf::from).into();
    seen.retain(|path| path.exists());
    for prefix in String::from_utf8(output.stdout)?.lines() {
        if !prefix.starts_with("/usr") {
            seen.push(prefix.into());
        }
    }
    Ok(seen)
}

/// numpy and pandas from PyPI, or an interpreter that has them.
pub(crate) fn environment() -> anyhow::Result<PathBuf> {
    if let Some(python) = std::env::var_os("SINEW_BENCH_PYTHON") {
        return Ok(python.into());
    }
    installed("bench-python", &PACKAGES, "import numpy, pandas")
}

/// The interpreter of a virtual environment in the target folder, with these
/// packages from PyPI. It cannot lie in `/tmp`: containers have their own.
#[expect(clippy::disallowed_methods, reason = "the packages are installed by their own installer")]
pub(crate) fn installed(folder: &str, packages: &[&str], check: &str) -> anyhow::Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../target").join(folder);
    std::fs::create_dir_all(&root)?;
    let root = root.canonicalize()?;
    let python = root.join("bin/python");
    if python.exists() && Command::new(&python).args(["-c", check]).output()?.status.success() {
        return Ok(python);
    }
    eprintln!("  installing {packages:?} from PyPI");
    let made = Command::new("python3").args(["-m", "venv", "--clear"]).arg(&root).output()?;
    ensure!(made.status.success(), "python3 cannot make a virtual environment; apt-get install python3-venv");
    let installed =
        Command::new(&python).args(["-m", "pip", "install", "--quiet"]).args(packages).output()?;
    if !installed.status.success() {
        bail!("pip cannot install {packages:?}: {}", String::from_utf8_lossy(&installed.stderr));
    }
    Ok(python)
}

/// The value below which this part of the measurements is.
fn percentile(values: &[f64], part: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (part * (sorted.len() as f64 - 1.0)).round() as usize;
    sorted.get(index).copied().unwrap_or(f64::NAN)
}

fn add_ms(report: &mut Report, figure: &str, values: &[f64], part: f64, meaning: &str) {
    report.add(figure, percentile(values, part) / 1e6, "ms", meaning, values.len());
}

/// Waits until the containers and instances that were used up are replaced.
fn settle(node: &Node, ready: usize) {
    let begun = Instant::now();
    while (node.functions.ready() < ready || node.functions.blanks() < node.blanks)
        && begun.elapsed() < Duration::from_secs(5)
    {
        std::thread::sleep(Duration::from_millis(1));
    }
    std::thread::sleep(Duration::from_millis(2));
}

/// Times until the first line, by the way that was taken.
#[derive(Default)]
struct Times {
    first: Vec<f64>,
    created: Vec<f64>,
    answered: Vec<f64>,
    bare: Vec<f64>,
    on_demand: Vec<f64>,
    blank: Vec<f64>,
    plain: Vec<f64>,
    contained: Vec<f64>,
}

pub(crate) fn run(report: &mut Report) -> anyhow::Result<()> {
    const READY: usize = 2;
    let python = environment()?;
    let ours = Node::contained(&python, READY)?;
    let on_demand = Node::contained(&python, 0)?;
    let bare = Node::bare(&python)?;
    let blank = Node::with(FunctionsOptions { blanks: READY, ..options(&python, READY) })?;
    let script = tempfile::tempdir()?;
    let file = script.path().join("x.py");
    std::fs::write(&file, SCRIPT)?;
    let seen = seen(&python)?;
    let mut runc = report.peer("runc", || {
        Bundle::new(&python, ("x.py", SCRIPT), &seen).and_then(|mut new| new.start().map(|_| new))
    });
    let mut javascript = javascript::Ways::new(report)?;
    ours.check()?;
    for node in [&ours, &on_demand, &bare, &blank] {
        for _ in 0..3 {
            node.start(SOURCE)?;
        }
    }
    let mut times = Times::default();
    for round in 0..ROUNDS {
        settle(&ours, READY);
        times.bare.push(bare.start(SOURCE)?.first_line);
        settle(&ours, READY);
        let start = ours.start(SOURCE)?;
        times.first.push(start.first_line);
        times.created.push(start.created);
        times.answered.push(start.answered);
        settle(&blank, READY);
        times.blank.push(blank.start(SOURCE)?.first_line);
        settle(&blank, READY);
        settle(&ours, READY);
        times.on_demand.push(on_demand.start(SOURCE)?.first_line);
        javascript.round(round % SLOW_EVERY == 0)?;
        if round % SLOW_EVERY == 0 {
            times.plain.push(plain_start(&python, &file)?);
            if let Some(runc) = &mut runc {
                times.contained.push(runc.start()?);
            }
        }
    }
    times.tell(report);
    joins(report)?;
    javascript.report(report);
    // Its node would work beside the others: it replaces what was taken.
    drop((ours, on_demand, bare, blank, javascript));
    let mut brought = brought::Brought::new()?;
    for _ in 0..BROUGHT_ROUNDS {
        brought.round()?;
    }
    brought.report(report, &times.contained)
}

/// What joining a container's control groups takes, by the file that containers
/// use and by the one that is usual.
#[expect(clippy::disallowed_methods, reason = "a process is moved from one group to another")]
fn joins(report: &mut Report) -> anyhow::Result<()> {
    const JOINS: usize = 30;
    let hierarchies = linux::Hierarchies::discover()?;
    let (mut own, mut usual) = (Vec::new(), Vec::new());
    for number in 0..JOINS {
        let name = format!("sinew-bench-joins-{}-{number}", std::process::id());
        let group = linux::Cgroup::create(&hierarchies, &name, &linux::CgroupLimits::default())?;
        let mut process = Command::new("sleep").arg("100").spawn()?;
        let pid = process.id().to_string();
        for (times, file) in [(&mut own, None), (&mut usual, Some("cgroup.procs"))] {
            let files = group.joins().map(|join| {
                let path = std::fs::read_link(format!("/proc/self/fd/{}", join.as_raw_fd()))?;
                Ok(file.map_or(path.clone(), |file| path.with_file_name(file)))
            });
            let files = files.collect::<std::io::Result<Vec<PathBuf>>>()?;
            let begun = linux::monotonic_ns();
            files.iter().try_for_each(|file| std::fs::write(file, &pid))?;
            times.push((linux::monotonic_ns() - begun) as f64);
            // Out of them again, for the next way.
            let parents =
                files.iter().filter_map(|file| Some(file.parent()?.parent()?.join(file.file_name()?)));
            for parent in parents {
                std::fs::write(parent, &pid)?;
            }
        }
        process.kill()?;
        process.wait()?;
    }
    add_ms(
        report,
        "cgroup_join_p50_ms",
        &own,
        0.5,
        "all of a container's control groups, as containers do it",
    );
    add_ms(report, "cgroup_join_by_procs_p50_ms", &usual, 0.5, "the same by `cgroup.procs`");
    Ok(())
}

impl Times {
    fn tell(&self, report: &mut Report) {
        let peer = "new container, prepared, to the first line";
        add_ms(report, "python_first_line_p50_ms", &self.first, 0.5, peer);
        add_ms(report, "python_first_line_p99_ms", &self.first, 0.99, peer);
        add_ms(report, "python_created_p50_ms", &self.created, 0.5, "of which until the function is loaded");
        add_ms(report, "python_answered_p50_ms", &self.answered, 0.5, "until the result is here");
        add_ms(report, "python_on_demand_p50_ms", &self.on_demand, 0.5, "container made when asked for");
        add_ms(report, "python_blank_p50_ms", &self.blank, 0.5, "instance forked and confined in advance");
        add_ms(report, "python_blank_p99_ms", &self.blank, 0.99, "the same");
        add_ms(report, "python_bare_fork_p50_ms", &self.bare, 0.5, "fork of the same template, no container");
        add_ms(report, "python_plain_p50_ms", &self.plain, 0.5, "python x.py with the imports, no container");
        let p50 = percentile(&self.first, 0.5);
        let mut ratio = |figure: &str, value: f64, peer: &str, n| report.add(figure, value, "x", peer, n);
        let over_bare = p50 / percentile(&self.bare, 0.5);
        ratio("python_over_bare_fork", over_bare, "new container / bare fork, p50", ROUNDS);
        ratio("forked_p99_over_p50", percentile(&self.first, 0.99) / p50, "forked when asked for", ROUNDS);
        let waiting = percentile(&self.blank, 0.5);
        ratio("p99_over_p50", percentile(&self.blank, 0.99) / waiting, "as the node does it", ROUNDS);
        let over_plain = percentile(&self.plain, 0.5) / p50;
        ratio("times_faster_than_plain", over_plain, "python x.py, p50", self.plain.len());
        if !self.contained.is_empty() {
            let (cold, n) = (percentile(&self.contained, 0.5), self.contained.len());
            let peer = "runc + cold interpreter, p50";
            ratio("python_times_faster_than_cold_container", cold / waiting, peer, n);
            ratio("python_forked_times_faster_than_cold", cold / p50, peer, n);
            add_ms(report, "python_cold_container_p50_ms", &self.contained, 0.5, "runc + cold interpreter");
        }
        report.note(
            "as the node does it: an instance waits for its function, forked and confined in advance, in a \
             container in which no user code ever ran; \"forked\": only the container was prepared",
        );
    }
}

#[expect(clippy::disallowed_methods, reason = "starting an interpreter is what is measured")]
fn plain_start(interpreter: &Path, file: &Path) -> anyhow::Result<f64> {
    // The bench has its own heap in huge pages, by a setting that would go on.
    command(Command::new(interpreter).arg(file).env_remove("GLIBC_TUNABLES"))
}
