// SPDX-License-Identifier: Apache-2.0
//! The packages that a function names, as a layer: `requirements.txt` by pip,
//! `package-lock.json` by npm.
//!
//! What is installed depends on the files that name it, the interpreter and
//! the machine: for each such combination it is done once, in the user's
//! cache, and shared by all functions. A folder of the cache is complete or
//! not there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

use anyhow::Context as _;
use objects::Handle;

use crate::bytecode::LAYER_PLACE;
use crate::commands::deploy::build::{Ended, run_to_end};
use crate::deployment::{read_text, within_bounds};
use crate::directory::{plan, unreadable};
use crate::exit::{Code, Stop};
use crate::function_api::is_not_found;
use crate::manifest::{Function, Runtime};
use crate::python::Python;
use crate::quantity::human_time;
use crate::upload::Uplink;

pub(crate) mod unread;

const PYTHON_FILE: &str = "requirements.txt";
const NODE_FILES: [&str; 2] = ["package-lock.json", "package.json"];
/// Of one such file.
const FILE_BYTES_MAX: u64 = 16 << 20;
/// Files that name others, within each other.
const INCLUDES_MAX: usize = 16;
/// Installations that are kept; those that were not used for longest go.
const KEPT_MAX: usize = 16;
/// What an installation consists of.
const LAYER: &str = "layer";
const HANDLE: &str = "handle";

/// What is to be installed.
struct Wanted {
    /// The directory that pip or npm runs in, with what they read.
    source: PathBuf,
    /// What installs it; npm if there is none.
    python: Option<Python>,
    /// Which installation this is.
    key: String,
    /// For people.
    file: &'static str,
}

/// What is installed for a function, as a layer.
pub(crate) struct Installed {
    pub(crate) layer: Handle,
    /// Where it is here.
    pub(crate) folder: PathBuf,
}

/// The layer of what a function needs, if it names anything.
pub(crate) async fn layer(
    function: &Function,
    source: &Path,
    uplink: &mut Uplink<'_>,
) -> anyhow::Result<Option<Installed>> {
    let Some(wanted) = wanted(function, source, uplink).await? else { return Ok(None) };
    let folder = cache("requirements")?.join(&wanted.key);
    let installed = |layer| Installed { layer, folder: folder.join(LAYER) };
    let noted = folder.join(HANDLE);
    if let Some(handle) = fs::read_to_string(&noted).ok().and_then(|text| text.parse::<Handle>().ok())
        && uplink.has(handle).await?
    {
        touch(&folder);
        return Ok(Some(installed(handle)));
    }
    if !folder.join(LAYER).is_dir() {
        install(&function.name, &wanted, &folder, uplink).await?;
    }
    touch(&folder);
    let planned = plan(&folder.join(LAYER), None)?;
    let what = format!("what {} of {} asks for", wanted.file, function.name);
    let handle = uplink.planned(&within_bounds(planned, &what)?).await?;
    // Without it all is only looked at once more.
    _ = fs::write(noted, handle.to_string());
    Ok(Some(installed(handle)))
}

/// Whether packages are installed for it, so that `node_modules` of the source is not its code.
pub(crate) fn has_lock(function: &Function, source: &Path) -> bool {
    function.runtime == Runtime::Node && function.has_requirements && source.join(NODE_FILES[0]).is_file()
}

async fn wanted(
    function: &Function,
    source: &Path,
    uplink: &mut Uplink<'_>,
) -> anyhow::Result<Option<Wanted>> {
    if !function.has_requirements || !source.is_dir() {
        return Ok(None);
    }
    let (file, text, interpreter, python) = match function.runtime {
        Runtime::Python => {
            let Some(text) = read_if_there(&source.join(PYTHON_FILE))? else { return Ok(None) };
            let text = with_included(source, PYTHON_FILE, &text, 0)?;
            if text.lines().all(|line| line.trim().is_empty() || line.trim().starts_with('#')) {
                return Ok(None);
            }
            let python = uplink.python().await??;
            (PYTHON_FILE, text, python.key(), Some(python))
        }
        Runtime::Node => {
            let Some(lock) = read_if_there(&source.join(NODE_FILES[0]))? else { return Ok(None) };
            let manifest = read_text(&source.join(NODE_FILES[1]), FILE_BYTES_MAX)?;
            (NODE_FILES[0], format!("{lock}\0{manifest}"), node()?.to_owned(), None)
        }
        Runtime::Java | Runtime::Executable | Runtime::Wasm | Runtime::Workflow => return Ok(None),
    };
    let mut hasher = blake3::Hasher::new();
    for part in [file, interpreter.as_str(), text.as_str()] {
        hasher.update(&(part.len() as u64).to_le_bytes()).update(part.as_bytes());
    }
    let key = hasher.finalize().to_hex()[..32].to_owned();
    Ok(Some(Wanted { source: source.to_owned(), python, key, file }))
}

fn read_if_there(path: &Path) -> anyhow::Result<Option<String>> {
    match read_text(path, FILE_BYTES_MAX) {
        Ok(text) => Ok(Some(text)),
        Err(error) if is_not_found(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file of requirements with those that it includes. Code that lies elsewhere
/// could change without a word of the file changing.
fn with_included(folder: &Path, name: &str, text: &str, level: usize) -> anyhow::Result<String> {
    let mut all = text.to_owned();
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        let place = || format!("{}:{}", folder.join(name).display(), at + 1);
        let included = ["-r", "--requirement", "-c", "--constraint"]
            .iter()
            .find_map(|flag| line.strip_prefix(flag)?.strip_prefix([' ', '=']));
        if let Some(included) = included.map(str::trim) {
            if level >= INCLUDES_MAX {
                return Err(Stop::new(Code::Usage, format!("{}: files include each other", place())).into());
            }
            let text = read_text(&folder.join(included), FILE_BYTES_MAX)
                .with_context(|| format!("{}: it includes {included}", place()))?;
            all.push('\0');
            all.push_str(&with_included(folder, included, &text, level + 1)?);
        } else if line.starts_with(['.', '/']) || line.starts_with("-e") || line.contains("file:") {
            let message = format!("{}: `{line}` is a directory, not a package of an index", place());
            let advice = "put the code into `source`, or install it by a `build` with an `output`";
            return Err(Stop::new(Code::Usage, message).suggest(advice).into());
        }
    }
    Ok(all)
}

async fn install(name: &str, wanted: &Wanted, folder: &Path, uplink: &mut Uplink<'_>) -> anyhow::Result<()> {
    let begun = Instant::now();
    uplink.say(&format!("installing what {} of {name} asks for; once, for all functions", wanted.file));
    if let Some(caution) = wanted.python.as_ref().and_then(Python::caution) {
        uplink.say(&caution);
    }
    let new = folder.with_extension(format!("{}.new", std::process::id()));
    let done = install_into(wanted, &new.join(LAYER)).await;
    let moved = done.and_then(|()| match fs::rename(&new, folder) {
        // Somebody else has just installed the same.
        Err(_) if folder.join(LAYER).is_dir() => Ok(()),
        moved => moved.map_err(|error| unreadable(folder, error)),
    });
    // After the rename there is nothing.
    _ = fs::remove_dir_all(&new);
    moved?;
    if let Some(cache) = folder.parent() {
        prune(cache, KEPT_MAX);
    }
    uplink.say(&format!("installed in {}", human_time(begun.elapsed())));
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "npm installs what the function names")]
async fn install_into(wanted: &Wanted, layer: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(layer).map_err(|error| unreadable(layer, error))?;
    let Some(python) = &wanted.python else {
        for file in NODE_FILES {
            let copied = fs::copy(wanted.source.join(file), layer.join(file));
            copied.map_err(|error| unreadable(&layer.join(file), error))?;
        }
        let mut npm = Command::new("npm");
        npm.args(["ci", "--omit=dev", "--no-audit", "--no-fund", "--loglevel=error"]).current_dir(layer);
        // Registries and their keys: read where they are, not copied.
        let own = wanted.source.join(".npmrc");
        if own.is_file() {
            npm.env("npm_config_userconfig", own.canonicalize().map_err(|error| unreadable(&own, error))?);
        }
        let advice = "correct the versions that are asked for; nothing was deployed";
        return finished(npm, "npm ci", advice).await;
    };
    let mut pip = python.pip_install();
    pip.args(["--quiet", "--disable-pip-version-check", "--no-input", "--no-compile"]);
    pip.args(["--root-user-action=ignore", "--target"]).arg(layer).args(["-r", PYTHON_FILE]);
    finished(in_source(pip, wanted), "pip install", &python.advice()).await?;
    if python.cache_tag().is_none() {
        return Ok(());
    }
    // What is imported from a layer cannot be compiled there; and whatever the
    // times of its files are, this is what was compiled from them.
    let mut compile = python.command();
    compile.args(["-m", "compileall", "-q", "--invalidation-mode", "unchecked-hash"]);
    // Two installations are the same bytes: nothing of where they were made is in them.
    compile.args(["-p", LAYER_PLACE, "-s"]).arg(layer).arg(layer).env("PYTHONHASHSEED", "0");
    // Packages carry files for other versions, which do not compile: no harm.
    run_to_end(compile, "compileall").await.map(drop)
}

fn in_source(mut command: Command, wanted: &Wanted) -> Command {
    if !wanted.source.as_os_str().is_empty() {
        command.current_dir(&wanted.source);
    }
    command
}

async fn finished(command: Command, what: &str, advice: &str) -> anyhow::Result<()> {
    let Ended { status, printed } = run_to_end(command, what).await?;
    if status.success() {
        return Ok(());
    }
    let stop = Stop::new(Code::Failed, format!("{what} failed ({status}):\n{}", printed.trim_end()));
    Err(stop.suggest(advice).into())
}

/// Which Node installs.
fn node() -> anyhow::Result<&'static str> {
    static TAG: OnceLock<String> = OnceLock::new();
    let script = "console.log(process.version, process.platform, process.arch)";
    tag(&TAG, "node", &["-e", script], "npm comes with Node: apt-get install npm")
}

/// What a program says of itself, asked once.
#[expect(clippy::disallowed_methods, reason = "the interpreter is asked what it is")]
pub(crate) fn tag(
    cell: &'static OnceLock<String>,
    program: &str,
    arguments: &[&str],
    advice: &str,
) -> anyhow::Result<&'static str> {
    if let Some(known) = cell.get() {
        return Ok(known);
    }
    let output = Command::new(program).args(arguments).output();
    let output = output.ok().filter(|output| output.status.success()).ok_or_else(|| {
        Stop::new(Code::Failed, format!("{program} is not there, which this function needs")).suggest(advice)
    })?;
    Ok(cell.get_or_init(|| String::from_utf8_lossy(&output.stdout).trim().to_owned()))
}

/// `$XDG_CACHE_HOME/sinew/NAME`, made if it is not there.
pub(crate) fn cache(name: &str) -> anyhow::Result<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let root = variable("XDG_CACHE_HOME").or_else(|| Some(variable("HOME")?.join(".cache")));
    let root = root.ok_or_else(|| {
        Stop::new(Code::Usage, "there is no place for packages: neither XDG_CACHE_HOME nor HOME is set")
    })?;
    let folder = root.join("sinew").join(name);
    fs::create_dir_all(&folder).map_err(|error| unreadable(&folder, error))?;
    Ok(folder)
}

/// Notes that it was used.
#[expect(clippy::disallowed_methods, reason = "a folder's age is in wall time")]
pub(crate) fn touch(folder: &Path) {
    // What cannot be noted is only forgotten sooner.
    _ = fs::File::open(folder).and_then(|folder| folder.set_modified(SystemTime::now()));
}

/// Forgets what was made in a cache and not used for longest.
pub(crate) fn prune(cache: &Path, kept: usize) {
    let entries = fs::read_dir(cache).into_iter().flatten().flatten();
    let aged = entries.filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.path())));
    let mut aged: Vec<(SystemTime, PathBuf)> = aged.collect();
    aged.sort();
    for (_, path) in aged.iter().rev().skip(kept) {
        // Whoever uses it has uploaded it, or installs it again.
        _ = fs::remove_dir_all(path);
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn requirements_are_read_with_what_they_include() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("base.txt"), "numpy\n").unwrap();
        let read = |text: &str| with_included(folder.path(), PYTHON_FILE, text, 0);
        assert_eq!(read("# a\n-r base.txt\nlxml\n").unwrap(), "# a\n-r base.txt\nlxml\n\0numpy\n");
        assert!(read("-c none.txt").unwrap_err().to_string().contains("requirements.txt:1"));
        for line in ["./package", "-e .", "package @ file:///tmp/x"] {
            assert!(read(line).unwrap_err().to_string().contains("not a package"), "{line}");
        }
        fs::write(folder.path().join("base.txt"), "-r base.txt\n").unwrap();
        assert!(read("-r base.txt").unwrap_err().to_string().contains("include each other"));
    }

    #[test]
    fn the_oldest_installations_go() {
        let cache = tempfile::tempdir().unwrap();
        for number in 0..KEPT_MAX + 3 {
            let folder = cache.path().join(format!("{number:02}"));
            fs::create_dir(&folder).unwrap();
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(number as u64);
            fs::File::open(&folder).unwrap().set_modified(time).unwrap();
        }
        touch(&cache.path().join("00"));
        prune(cache.path(), KEPT_MAX);
        let is_there = |number: usize| cache.path().join(format!("{number:02}")).exists();
        assert!(is_there(0) && !is_there(1) && !is_there(3) && is_there(4));
    }
}
