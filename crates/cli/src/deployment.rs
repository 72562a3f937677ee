// SPDX-License-Identifier: Apache-2.0
//! A manifest's function as the tree of `docs/spec/functions.md`, section 4,
//! on its way to a node.

mod module;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use objects::{Handle, Limits, TreeBuilder};

use crate::bytecode;
use crate::directory::{Plan, plan, plan_of_file, unreadable};
use crate::exit::{Code, Stop};
use crate::imports::Advice;
use crate::java;
use crate::manifest::{self, Function, Pairs, Runtime, Selection};
use crate::requirements;
use crate::upload::Uplink;

/// The first entry of a deployment.
pub(crate) const TAG: &[u8] = b"sinew:function/1";
/// Where a source says which of its files are no code.
const IGNORED: &str = ".sinewignore";
const IGNORED_BYTES_MAX: u64 = 1 << 20;
// Of a code's directory; the specification says so.
const ENTRIES_MAX: usize = 100_000;
const LEVELS_MAX: usize = 64;
/// Of one function, as the specification says.
const LAYERS_MAX: usize = 16;
const BYTES_MAX: u64 = 4 << 30;

/// What a deployment consists of, by names for people.
pub(crate) type Parts = Vec<(&'static str, Handle)>;

/// A deployment whose objects are on the node, or wait in the uplink.
pub(crate) struct Uploaded {
    pub(crate) deployment: Handle,
    pub(crate) parts: Parts,
    /// Where its code is here, and what its requirements are installed in.
    source: PathBuf,
    installed: Option<PathBuf>,
}

impl Uploaded {
    /// What would have its instances begin sooner, where it took so long to have one.
    pub(crate) fn advice(&self, function: &Function, took: Duration) -> Option<Advice> {
        Advice::of(function, &self.source, self.installed.as_deref(), took)
    }
}

/// Uploads what a function is made of. What is small waits in the uplink.
pub(crate) async fn upload(
    function: &Function,
    folder: &Path,
    uplink: &mut Uplink<'_>,
) -> anyhow::Result<Uploaded> {
    let output = function.build.as_ref().and_then(|build| build.output.as_deref());
    let source = folder.join(output.unwrap_or(&function.source));
    let mut installed = None;
    let (procedure, inner) = match function.runtime {
        Runtime::Wasm => module::procedure(function, folder, &source, uplink).await?,
        Runtime::Workflow => {
            let runtime = uplink.blob(b"sinew:workflow".to_vec()).await?;
            let declaration = function.declaration.clone().unwrap_or_default();
            let inner = vec![runtime, uplink.blob(declaration.into_bytes()).await?];
            (tree(&inner, uplink).await?, inner)
        }
        Runtime::Python | Runtime::Node | Runtime::Java | Runtime::Executable => {
            let inner = process(function, folder, &source, &mut installed, uplink).await?;
            (tree(&inner, uplink).await?, inner)
        }
    };
    let fuel = function.module.fuel.unwrap_or(0);
    let limits = Limits { memory_bytes: function.memory_bytes, fuel, ..Limits::default() };
    let limits = limits.handle().context("the memory is over 2^48 bytes")?;
    let serving = pairs(&manifest::serving(function), uplink).await?;
    let tag = uplink.blob(TAG.to_vec()).await?;
    let deployment = tree(&[tag, procedure, limits, serving], uplink).await?;
    Ok(Uploaded { deployment, parts: parts(&inner, limits, serving), source, installed })
}

/// The parts of a deployment. `inner`: the entries of a procedure, the codelet, or a program and all that it is told.
pub(crate) fn parts(inner: &[Handle], limits: Handle, serving: Handle) -> Parts {
    let is_declared = inner.first().is_some_and(|first| first.literal_bytes() == Some(b"sinew:workflow"));
    let names: &[&str] = match inner.len() {
        _ if is_declared => &["runtime", "declaration"],
        4 => &["runtime", "code", "layers", "settings"],
        _ => &["code", "arguments"],
    };
    let inner = names.iter().copied().zip(inner.iter().copied());
    inner.chain([("limits", limits), ("serving", serving)]).collect()
}

/// `runtime, code, layers, settings`; and where its requirements are installed.
async fn process(
    function: &Function,
    folder: &Path,
    source: &Path,
    installed: &mut Option<PathBuf>,
    uplink: &mut Uplink<'_>,
) -> anyhow::Result<Vec<Handle>> {
    let runtime = format!("sinew:{}", function.runtime.on_the_node().name());
    let runtime = uplink.blob(runtime.into_bytes()).await?;
    let mut code = code(function, source)?;
    if function.runtime == Runtime::Java {
        let built = java::built(function, &code, source, uplink).await?;
        code = plan(&built, None)?;
    }
    let is_python = function.runtime == Runtime::Python;
    // What changes again and again is imported sooner than compiled, sent and imported.
    if is_python && !uplink.is_remembering() {
        code = bytecode::add(code, bytecode::CODE_PLACE, uplink).await?;
    }
    let code = uplink.planned(&code).await?;
    let mut layers = Vec::new();
    if let Some(requirements) = requirements::layer(function, source, uplink).await? {
        layers.push(requirements.layer);
        *installed = Some(requirements.folder);
    } else if let Some(told) = requirements::unread::told(function, source) {
        uplink.say_once(&told);
    }
    for layer in &function.layers {
        let path = folder.join(layer);
        let planned = plan(&path, Some(&select(&[], &[], &path)?))?;
        let mut planned = within_bounds(planned, layer)?;
        if is_python {
            planned = bytecode::add(planned, bytecode::LAYER_PLACE, uplink).await?;
        }
        layers.push(uplink.planned(&planned).await?);
    }
    if layers.len() > LAYERS_MAX {
        let message = format!(
            "{} has {} layers with that of its requirements; at most {LAYERS_MAX}",
            function.name,
            layers.len()
        );
        let advice = "put some together: `layers`; or requirements = false";
        return Err(Stop::new(Code::Failed, message).suggest(advice).into());
    }
    let layers = tree(&layers, uplink).await?;
    let settings = pairs(&manifest::settings(function), uplink).await?;
    Ok(vec![runtime, code, layers, settings])
}

/// What of a source is the code.
pub(crate) fn code(function: &Function, source: &Path) -> anyhow::Result<Plan> {
    let metadata = std::fs::metadata(source).map_err(|error| no_source(function, source, error))?;
    if !metadata.is_dir() {
        return plan_of_file(source);
    }
    let mut exclude = function.exclude.clone();
    if requirements::has_lock(function, source) {
        // It is installed anew, for the function's machine.
        exclude.extend(manifest::Glob::new("/node_modules/"));
    }
    let selection = select(&function.include, &exclude, source)?;
    let plan = within_bounds(plan(source, Some(&selection))?, &function.name)?;
    if plan.entries == 0 {
        let message = format!("{}: the function {} has no code", source.display(), function.name);
        return Err(Stop::new(Code::Failed, message)
            .suggest("look at `source`, `include` and `exclude`")
            .into());
    }
    Ok(plan)
}

fn no_source(function: &Function, source: &Path, error: std::io::Error) -> anyhow::Error {
    let reason = unreadable(source, error);
    match (reason.downcast::<Stop>(), &function.build) {
        (Ok(stop), Some(_)) => stop.suggest("the build's command made no such output").into(),
        (Ok(stop), None) => {
            stop.suggest(format!("`source` of the function {} names what is deployed", function.name)).into()
        }
        (Err(error), _) => error,
    }
}

pub(crate) fn select(
    include: &[manifest::Glob],
    exclude: &[manifest::Glob],
    source: &Path,
) -> anyhow::Result<Selection> {
    let path = source.join(IGNORED);
    let ignored = match read_text(&path, IGNORED_BYTES_MAX) {
        Ok(text) => text,
        Err(error) if crate::function_api::is_not_found(&error) => String::new(),
        Err(error) => return Err(error),
    };
    Selection::new(include, exclude, &ignored).map_err(|(line, message)| {
        Stop::new(Code::Usage, format!("{}:{line}: {message}", path.display())).into()
    })
}

pub(crate) fn within_bounds(plan: Plan, name: &str) -> anyhow::Result<Plan> {
    let over = if plan.entries > ENTRIES_MAX {
        format!("{} files and directories; at most {ENTRIES_MAX}", plan.entries)
    } else if plan.levels > LEVELS_MAX {
        format!("directories within each other {} levels deep; at most {LEVELS_MAX}", plan.levels)
    } else if plan.bytes > BYTES_MAX {
        format!("{} bytes; at most {BYTES_MAX}", plan.bytes)
    } else {
        return Ok(plan);
    };
    let stop = Stop::new(Code::Failed, format!("{name} has {over}"));
    Err(stop.suggest("leave out what the function does not need: `exclude`, or .sinewignore").into())
}

/// A text file of bounded length.
pub(crate) fn read_text(path: &Path, most: u64) -> anyhow::Result<String> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| unreadable(path, error))?;
    let mut limited = std::io::Read::take(file, most + 1);
    std::io::Read::read_to_string(&mut limited, &mut text).map_err(|error| unreadable(path, error))?;
    if text.len() as u64 > most {
        return Err(Stop::new(Code::Failed, format!("{} has more than {most} bytes", path.display())).into());
    }
    Ok(text)
}

async fn pairs(pairs: &Pairs, uplink: &mut Uplink<'_>) -> anyhow::Result<Handle> {
    let mut entries = Vec::with_capacity(2 * pairs.len());
    for (name, value) in pairs {
        entries.push(uplink.blob(name.clone().into_bytes()).await?);
        entries.push(uplink.blob(value.clone().into_bytes()).await?);
    }
    tree(&entries, uplink).await
}

pub(crate) async fn tree(entries: &[Handle], uplink: &mut Uplink<'_>) -> anyhow::Result<Handle> {
    let mut tree = TreeBuilder::with_capacity(entries.len());
    for &entry in entries {
        tree.push(entry);
    }
    uplink.tree(&tree).await
}
