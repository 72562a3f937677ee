// SPDX-License-Identifier: Apache-2.0
//! `sinew map`: runs a program for each of many files, each run an application of its own, so that
//! only what changed is run again (`docs/how-to/run-many-files.md`).

mod files;
mod folder;
mod job;
mod opened;
mod recipe;
mod report;
mod template;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use clap::Args;
use objects::Handle;
use serde_json::json;
use tokio::io::AsyncReadExt as _;
use tokio::task::JoinSet;

use crate::directory::unreadable;
use crate::exit::{Code, Stop};
use crate::node_api::Node;
use crate::output::Output;
use crate::progress::Progress;
use crate::upload::Uplink;
use files::Files;
use folder::Bundles;
use job::Course;
use recipe::Recipe;
use report::{Outcome, Report};
use template::Braces;

use super::put::stdin;
use super::run::options::Options;

/// Programs under way for each worker of the node: one runs, and one is there when it has ended.
const JOBS_PER_WORKER: u64 = 2;
/// Where a node does not tell how many workers it has.
const JOBS: u64 = 8;
const JOBS_MAX: u64 = 256;
/// A list of files, at most.
const LIST_BYTES_MAX: u64 = 256 << 20;
const TICK: Duration = Duration::from_millis(200);

/// What to run, for which files, and what each run sees.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    sinew map wc.wasm 'books/**/*.txt' -- -w\n  \
    sinew map llvm.wasm 'src/**/*.c' --with 'src/**/*.h' --out obj -- clang -c {} -o /out/{.}.o\n  \
    sinew map jq.wasm 'data/*.json' --stdin {} --stdout {} --out clean -- .items\n  \
    sinew map python.wasm 'tables/*.csv' --with clean.py --out clean -- clean.py {} /out/{/}\n\
    Quote patterns, so that they are expanded here and not by the shell: *, ?, [a-z], and ** for any directories.\n\
    {} is the file's path, {.} without its ending, {/} the name, {/.} the name without its ending, {//} the directory;\n\
    in ARGS, --env, --entry, --seed, --stdin and --stdout. Where none of them has one, the path is the last argument.\n\
    A program finds its file at this path, the files of --with at theirs, and nothing of the other files. It writes to\n\
    /out, where the directory of its file is already, and what all wrote there is one directory in the end.\n\
    What is remembered is not run again: only files that changed are, or all if the program, an argument, --with or --dir did.\n\
    Exit code: 0 if all programs ended with 0, 3 if some failed (the others are run nevertheless); else as of all commands.")]
pub(crate) struct Arguments {
    /// A file, or a handle or #LABEL of a stored module
    #[arg(value_name = "PROGRAM")]
    program: String,
    /// Which files: paths and patterns
    #[arg(value_name = "FILES", required_unless_present = "files_from")]
    files: Vec<OsString>,
    /// What each program finds in its argument list
    #[arg(last = true, value_name = "ARGS")]
    arguments: Vec<String>,
    /// A file with the paths of more files, one a line; - is ours
    #[arg(long, value_name = "FILE|-")]
    files_from: Option<PathBuf>,
    /// Files that are not meant, though the others say so: paths and patterns
    #[arg(long, value_name = "FILES")]
    exclude: Vec<OsString>,
    /// Files that each program sees besides its own, at their paths; if one changes, all are run again
    #[arg(long, value_name = "FILES")]
    with: Vec<OsString>,
    /// Write what the programs wrote to GUEST (default: /out) into this directory
    #[arg(long, value_name = "DIR[=GUEST]")]
    out: Option<String>,
    /// Have what each program prints be a file of what it wrote, at this path, instead of printing it
    #[arg(long, value_name = "PATH")]
    stdout: Option<String>,
    /// When all have ended well, name the tree of what they wrote, for `sinew run --dir '#LABEL=/in'` or `sinew label`
    #[arg(long, value_name = "LABEL")]
    label: Option<String>,
    /// Files under way at once [default: two for each worker of the node]
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=JOBS_MAX))]
    jobs: Option<u64>,
    /// Two characters that stand for { and }, where arguments have braces of their own
    #[arg(long, value_name = "AB", default_value = "{}")]
    braces: Braces,
    #[command(flatten)]
    options: Options,
    /// Tell the progress, also where stderr is no terminal
    #[arg(long)]
    progress: bool,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let begun = Instant::now();
    let files = selected(arguments).await?;
    let uploading = Progress::bytes(output, "uploading", None, arguments.progress);
    let mut uplink = Uplink::new(node, output, uploading);
    let recipe = Recipe::prepare(arguments, &mut uplink).await?;
    drop(uplink);
    if let Some(target) = recipe.target() {
        std::fs::create_dir_all(target).with_context(|| target.display().to_string())?;
    }
    let jobs = match arguments.jobs {
        Some(jobs) => jobs,
        // Who may evaluate need not be allowed to ask how the node is.
        None => node.workers().await.map_or(JOBS, |workers| workers * JOBS_PER_WORKER),
    };
    let course = Arc::new(Course::new(recipe));
    let mut report = Report::new(&files, arguments.stdout.is_some(), output);
    let mut progress = Progress::files(output, files.len() as u64, arguments.progress);
    let jobs = jobs.clamp(1, JOBS_MAX);
    work(&course, &files, jobs, &mut report, &mut progress, node).await?;
    progress.end();
    let tree = keep(&course, &files, node).await;
    let is_fine = report.tally.failed == 0;
    if let (Some(label), Ok(tree), true) = (&arguments.label, &tree, is_fine) {
        node.set_label(label, *tree).await?;
    }
    tell(arguments, &report, &course, tree.as_ref().ok(), begun.elapsed(), output)?;
    match report.failure() {
        None => tree.map(|_| ()),
        Some(stop) => Err(stop.into()),
    }
}

/// The files that are meant.
async fn selected(arguments: &Arguments) -> anyhow::Result<Vec<PathBuf>> {
    let mut files = Files::default();
    files.expand(&arguments.files)?;
    if let Some(path) = &arguments.files_from {
        files.listed(&list(path).await?)?;
    }
    files.exclude(&arguments.exclude)?;
    let files = files.into_list();
    if files.is_empty() {
        let stop = Stop::new(Code::NotFound, "no files are left to run the program for");
        return Err(stop
            .suggest("`git ls-files '*.c' | sinew map … --files-from -`, or less to --exclude")
            .into());
    }
    Ok(files)
}

/// A list of files, as it is.
async fn list(path: &Path) -> anyhow::Result<Vec<u8>> {
    let mut list = Vec::new();
    let read = if path == Path::new("-") {
        stdin()?.take(LIST_BYTES_MAX + 1).read_to_end(&mut list).await
    } else {
        let file = tokio::fs::File::open(path).await.map_err(|error| unreadable(path, error))?;
        file.take(LIST_BYTES_MAX + 1).read_to_end(&mut list).await
    };
    read.map_err(|error| unreadable(path, error))?;
    if list.len() as u64 > LIST_BYTES_MAX {
        let stop = Stop::new(Code::Usage, format!("{} has more than {LIST_BYTES_MAX} bytes", path.display()));
        return Err(stop.suggest("map parts of it").into());
    }
    Ok(list)
}

/// Runs all files, so many at once.
async fn work(
    course: &Arc<Course>,
    files: &[PathBuf],
    jobs: u64,
    report: &mut Report<'_>,
    progress: &mut Progress,
    node: &mut Node,
) -> anyhow::Result<()> {
    let mut running: JoinSet<(usize, Node, Outcome)> = JoinSet::new();
    let mut idle: Vec<Node> = Vec::new();
    let mut coming = files.iter().enumerate();
    let mut tick = tokio::time::interval(TICK);
    loop {
        while (running.len() as u64) < jobs {
            let Some((at, path)) = coming.next() else { break };
            let mut node = idle.pop().unwrap_or_else(|| node.another());
            let (course, path) = (course.clone(), path.clone());
            running.spawn(async move {
                let outcome = job::run(course, path, at, &mut node).await;
                (at, node, outcome)
            });
        }
        tokio::select! {
            ended = running.join_next() => {
                let Some(ended) = ended else { return Ok(()) };
                let (at, connection, outcome) = ended.context("a file's task ended without a result")?;
                let outcome = match outcome {
                    Err(error) if concerns_all(&error) => return Err(error),
                    outcome => outcome,
                };
                idle.push(connection);
                report.take(at, outcome, progress, node).await?;
            }
            _ = tick.tick() => progress.tally(report.tally, report.output()),
        }
    }
}

/// Whether no other file will have a better fate: the node is gone, the program none, or its memory more than
/// the node has.
fn concerns_all(error: &anyhow::Error) -> bool {
    let Some(stop) = error.downcast_ref::<Stop>() else { return false };
    let failure = stop.problem.as_ref().and_then(|problem| problem["failure"]["code"].as_str());
    matches!(stop.code, Code::NotRunning | Code::Unauthorised)
        || matches!(failure, Some("bad-procedure" | "resources"))
}

/// The tree of what all programs made.
async fn keep(course: &Course, files: &[PathBuf], node: &mut Node) -> anyhow::Result<Handle> {
    let (tree, bundles) = {
        let outputs = course.outputs();
        if let Some((path, one, other)) = outputs.conflicts.first() {
            let path = String::from_utf8_lossy(path);
            let (one, other) = (files[*one].display(), files[*other].display());
            let more = match outputs.conflicting {
                1 => String::new(),
                all => format!(", and {} more like it", all - 1),
            };
            let message = format!("{path} was made of {one} and of {other}, each another one{more}");
            let advice = "have each file's program write to its own path: /out/{.}.o";
            return Err(Stop::new(Code::Failure, message).suggest(advice).into());
        }
        let mut bundles = Bundles::default();
        let sealed = outputs.folder.seal(&mut bundles);
        (sealed.handle, bundles.finish())
    };
    for bundle in bundles {
        node.put_bundle(bundle).await?;
    }
    Ok(tree)
}

/// The last words.
fn tell(
    arguments: &Arguments,
    report: &Report<'_>,
    course: &Course,
    tree: Option<&Handle>,
    took: Duration,
    output: &Output,
) -> anyhow::Result<()> {
    let label = arguments.label.as_ref().filter(|_| tree.is_some() && report.tally.failed == 0);
    let outputs = course.outputs();
    if output.is_json() {
        let mut line = report.summary_json(took);
        line["outputs"] = outputs.count.into();
        line["tree"] = json!(tree.map(Handle::to_string));
        line["label"] = json!(label);
        return output.json(&json!({ "summary": line }));
    }
    output.say(&report.summary(took));
    let is_wanted = output.is_watched() || arguments.label.is_some();
    if let (Some(tree), None, true, false) = (tree, label, is_wanted, outputs.folder.is_empty()) {
        output.say(&format!("what they wrote: {tree}"));
    }
    Ok(())
}
