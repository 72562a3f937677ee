// SPDX-License-Identifier: Apache-2.0
//! `sinew deploy`: builds, uploads and switches the functions of manifests.
//!
//! All functions are uploaded before the first is switched, so that what can
//! go wrong does so while the old versions serve.

pub(crate) mod build;

use std::path::{Path, PathBuf};
use std::time::Instant;

use clap::Args;
use objects::Handle;
use serde_json::json;

use crate::deployment::{self, Parts, TAG, Uploaded, read_text};
use crate::directory::unreadable;
use crate::exit::{Code, Stop};
use crate::expression::closest;
use crate::function_api::Deployed;
use crate::manifest::{self, FILE_NAME, Function, TEXT_BYTES_MAX};
use crate::node_api::Node;
use crate::output::Output;
use crate::progress::Progress;
use crate::quantity::human_time;
use crate::upload::Uplink;

/// What to deploy.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sinew deploy\n  sinew deploy services/a services/b\n  \
    sinew deploy --function hello\n  sinew deploy -m \"$(git log -1 --format='%h %s')\"")]
pub(crate) struct Arguments {
    /// Directories with a sinew.toml, or such files [default: .]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Only this function; may be repeated
    #[arg(short, long = "function", value_name = "NAME")]
    functions: Vec<String>,
    /// Keep the new version, and let the old ones go on serving; `sinew alias` shares requests
    #[arg(long)]
    no_traffic: bool,
    /// A line that is kept with the new versions, and told by `sinew describe`
    #[arg(short, long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    message: String,
    /// Tell the progress, also where stderr is no terminal
    #[arg(long)]
    progress: bool,
}

/// A function, and where its manifest lies.
#[derive(Debug, Clone)]
pub(super) struct Wanted {
    pub(super) folder: PathBuf,
    pub(super) function: Function,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let begun = Instant::now();
    if arguments.message.contains(char::is_control) {
        let stop = Stop::new(Code::Usage, "deploy: a message is one line, without control characters");
        return Err(stop.suggest("-m \"$(git log -1 --format='%h %s')\" has one line").into());
    }
    let here = [PathBuf::from(".")];
    let paths = if arguments.paths.is_empty() { &here[..] } else { &arguments.paths[..] };
    let wanted = wanted(paths, &arguments.functions)?;
    for Wanted { folder, function } in &wanted {
        if let Some(build) = &function.build {
            build::run(&function.name, build, folder, output).await?;
        }
    }
    let progress = Progress::bytes(output, "uploading", None, arguments.progress);
    let mut uplink = Uplink::new(node, output, progress);
    let mut uploaded = Vec::with_capacity(wanted.len());
    for Wanted { folder, function } in &wanted {
        uploaded.push(deployment::upload(function, folder, &mut uplink).await?);
    }
    uplink.flush().await?;
    drop(uplink);
    let mut before = Vec::with_capacity(wanted.len());
    for Wanted { function, .. } in &wanted {
        before.push(Before::of(&function.name, node).await?);
    }
    let handles: Vec<(&str, Handle)> = wanted
        .iter()
        .zip(&uploaded)
        .map(|(one, parts)| (one.function.name.as_str(), parts.deployment))
        .collect();
    let deployed = node
        .deploy_all(&handles, !arguments.no_traffic, &arguments.message)
        .await
        .map_err(|error| refused(&handles, error))?;
    let sources = wanted.iter().map(|one| &one.function).zip(&uploaded);
    for ((source, before), deployed) in sources.zip(&before).zip(&deployed) {
        tell(source, before, deployed, begun, node, output).await?;
    }
    Ok(())
}

/// Which one was refused, and that the others were not deployed either.
fn refused(all: &[(&str, Handle)], error: anyhow::Error) -> anyhow::Error {
    let stop = match error.downcast::<Stop>() {
        Ok(stop) => stop,
        Err(error) => return error,
    };
    let told = stop.problem.as_ref().and_then(|problem| problem["function"].as_str()).map(str::to_owned);
    let Some(name) = told.or_else(|| Some(all.first().filter(|_| all.len() == 1)?.0.to_owned())) else {
        return stop.into();
    };
    let others: Vec<&str> = all.iter().map(|(name, _)| *name).filter(|other| *other != name).collect();
    match not_deployed(&name, stop.into()).downcast::<Stop>() {
        Ok(stop) if others.is_empty() => stop.into(),
        Ok(mut stop) => {
            let of_them = format!("not deployed either, for all are or none: {}", others.join(", "));
            let own = stop.suggestion.take();
            stop.suggestion = Some(own.map_or(of_them.clone(), |own| format!("{own}; {of_them}")));
            stop.into()
        }
        Err(error) => error,
    }
}

/// Which function it was, and what the node found wrong with it.
pub(super) fn not_deployed(name: &str, error: anyhow::Error) -> anyhow::Error {
    let stop = match error.downcast::<Stop>() {
        Ok(stop) => stop,
        Err(error) => return error.context(format!("{name} was not deployed")),
    };
    let problem = stop.problem.as_ref();
    let is_its_own = problem.is_some_and(|problem| problem["type"] == "urn:sinew:problem:bad-deployment");
    let detail = problem.and_then(|problem| problem["detail"].as_str()).filter(|_| is_its_own);
    let message = format!("{name} was not deployed: {}", detail.unwrap_or(&stop.message));
    if is_its_own {
        let advice = "mend it and `sinew deploy` again; what served before still does";
        return Stop { message, ..stop }.suggest(advice).into();
    }
    Stop { message, ..stop }.into()
}

/// The functions of all manifests, less those that nobody asked for.
pub(super) fn wanted(paths: &[PathBuf], functions: &[String]) -> anyhow::Result<Vec<Wanted>> {
    let mut all: Vec<Wanted> = Vec::new();
    for path in paths {
        let file = manifest_at(path)?;
        let folder = file.parent().unwrap_or(Path::new("")).to_owned();
        for function in read(&file)? {
            if all.iter().any(|other| other.function.name == function.name) {
                let message =
                    format!("{} and another manifest have a function {}", file.display(), function.name);
                return Err(Stop::new(Code::Usage, message).suggest("rename one of them").into());
            }
            all.push(Wanted { folder: folder.clone(), function });
        }
    }
    for name in functions {
        let known: Vec<&str> = all.iter().map(|wanted| wanted.function.name.as_str()).collect();
        if !known.contains(&name.as_str()) {
            let stop = Stop::new(Code::NotFound, format!("no manifest has a function {name:?}"));
            let near = closest(name, known.iter().copied()).map(|near| format!("did you mean {near}?"));
            return Err(stop
                .suggest(near.unwrap_or_else(|| format!("there are: {}", known.join(", "))))
                .into());
        }
    }
    all.retain(|wanted| functions.is_empty() || functions.contains(&wanted.function.name));
    Ok(all)
}

/// The manifest that a path names: itself, or the one in a directory.
pub(super) fn manifest_at(path: &Path) -> anyhow::Result<PathBuf> {
    let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, error))?;
    if !metadata.is_dir() {
        return Ok(path.to_owned());
    }
    let file = path.join(FILE_NAME);
    if file.exists() {
        return Ok(file);
    }
    let stop = Stop::new(Code::NotFound, format!("there is no {}", file.display()));
    Err(stop.suggest("`sinew new NAME` writes one; or name the directory: sinew deploy DIR").into())
}

fn read(file: &Path) -> anyhow::Result<Vec<Function>> {
    let text = read_text(file, TEXT_BYTES_MAX)?;
    manifest::parse(&text, &|name| std::env::var(name).ok()).map_err(|faults| {
        let shown: Vec<String> =
            faults.iter().map(|fault| fault.render(&file.display().to_string(), &text)).collect();
        let stop = Stop::new(Code::Usage, format!("the manifest is not right\n{}", shown.join("\n")));
        stop.suggest("all fields are in docs/reference/manifest.md").into()
    })
}

/// What served before.
struct Before {
    deployment: Option<Handle>,
    parts: Parts,
}

impl Before {
    async fn of(name: &str, node: &mut Node) -> anyhow::Result<Self> {
        let known = node.find_function(name).await?;
        let deployment = known.as_ref().and_then(|function| function["deployment"].as_str()?.parse().ok());
        let parts = match deployment {
            Some(handle) => parts_of(handle, node).await,
            None => Parts::new(),
        };
        Ok(Self { deployment, parts })
    }
}

/// Tells what is different from what served before.
async fn tell(
    (function, uploaded): (&Function, &Uploaded),
    before: &Before,
    deployed: &Deployed,
    begun: Instant,
    node: &mut Node,
    output: &Output,
) -> anyhow::Result<()> {
    let name = function.name.as_str();
    let advice = uploaded.advice(function, deployed.loading).filter(|_| deployed.changed);
    let changes: Vec<&str> = match (deployed.changed, before.deployment) {
        (false, _) => Vec::new(),
        (true, None) => vec!["new"],
        (true, Some(_)) => {
            let parts = uploaded.parts.iter().filter(|part| !before.parts.contains(part));
            parts.map(|&(part, _)| part).collect()
        }
    };
    let url = url_of(name, node).await;
    let took = begun.elapsed();
    if output.is_json() {
        return output.json(&json!({
            "name": name, "version": deployed.version, "deployment": deployed.deployment, "changed": deployed.changed,
            "changes": changes, "url": url, "ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
            "advised_imports": advice.map(|advice| advice.imports),
        }));
    }
    let what = match (deployed.changed, changes.as_slice()) {
        (false, _) => "unchanged".to_owned(),
        (true, ["new"]) => "new".to_owned(),
        (true, []) => "changed".to_owned(),
        (true, parts) => format!("changed: {}", parts.join(", ")),
    };
    output.line(&format!("{name}  version {}  {what}  {url}  {}", deployed.version, human_time(took)))?;
    if let Some(advice) = advice {
        output.say(&advice.text(name));
    }
    Ok(())
}

/// What a deployment consists of; nothing if it is none that this program knows.
async fn parts_of(deployment: Handle, node: &mut Node) -> Parts {
    let Ok(entries) = node.entries(deployment, 0, 4).await else { return Parts::new() };
    let [tag, procedure, limits, serving] = entries[..] else { return Parts::new() };
    if tag.literal_bytes() != Some(TAG) {
        return Parts::new();
    }
    let inner = match procedure.names_tree() {
        true => match node.entries(procedure, 0, 4).await.unwrap_or_default() {
            // A program, and what it is told. A runtime is named by a literal.
            entries if entries.first().is_some_and(|first| first.literal_bytes().is_none()) => {
                vec![entries[0], procedure]
            }
            entries => entries,
        },
        false => vec![procedure],
    };
    deployment::parts(&inner, limits, serving)
}

/// Where the function answers: over TCP as the node was named, else as it says itself.
pub(crate) async fn url_of(name: &str, node: &mut Node) -> String {
    let here = node.url(&format!("/function/{name}"));
    if here.starts_with("http") {
        return here;
    }
    node.listens_at().await.map_or(here, |base| format!("{base}/function/{name}"))
}

#[cfg(test)]
mod tests;
