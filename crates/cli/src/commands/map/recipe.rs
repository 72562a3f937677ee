// SPDX-License-Identifier: Apache-2.0
//! What is the same for all files, and the application that it makes of each.
//!
//! The application of a file holds that file, at its path, and what all of them share; of the other
//! files it holds nothing, so that it stays the same when they change.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use objects::Handle;

use super::Arguments;
use super::files::Files;
use super::folder::{Bundles, Folder, Leaf, Sealed, nested};
use super::opened::{Opened, Place, of_snapshot, order, place_of_out};
use super::template::{Braces, Template};
use crate::commands::run::application::{Application, input, name_of, program};
use crate::directory::{is_executable, unreadable};
use crate::exit::{Code, Stop};
use crate::expression::Objects;
use crate::node_api::{Node, Wishes};
use crate::upload::{Uplink, named};

/// Where a program finds the files: relative paths begin here.
const ROOT: &str = "/";
/// Where it finds the directory for what it makes, unless told.
const OUT: &str = "/out";

/// What programs read from stdin.
#[derive(Debug)]
enum Stdin {
    Shared(Handle),
    /// Of each file another one.
    Each(Template),
}

/// `--out HOST[=GUEST]`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Out {
    pub(super) host: Option<PathBuf>,
    guest: String,
}

impl Out {
    pub(super) fn parse(text: Option<&str>) -> Result<Self, Stop> {
        let Some(text) = text else { return Ok(Self { host: None, guest: OUT.to_owned() }) };
        let (host, guest) = text.split_once('=').unwrap_or((text, OUT));
        if host.is_empty() || guest.is_empty() {
            let stop = Stop::new(Code::Usage, format!("{text:?} is not like HOST=GUEST"));
            return Err(stop.suggest("--out obj, or --out obj=/build"));
        }
        Ok(Self { host: Some(host.into()), guest: guest.to_owned() })
    }
}

/// A mapped file on its way into its application.
#[derive(Debug, Clone, Copy)]
pub(super) struct Given {
    /// `f` or `x`.
    pub(super) kind: u8,
    pub(super) handle: Handle,
    /// What the program reads from stdin, where each has another one.
    pub(super) stdin: Option<Handle>,
}

/// An application of one file.
#[derive(Debug)]
pub(super) struct FileGoal {
    pub(super) goal: Handle,
    /// The directory for what is made, as it is given, and those in it on the way to the file's own.
    pub(super) out: Vec<Handle>,
}

/// What is the same for all files.
#[derive(Debug)]
pub(super) struct Recipe {
    limits: Handle,
    program: Handle,
    name: String,
    arguments: Vec<Template>,
    variables: Vec<Template>,
    entries: Vec<Template>,
    seed: Option<Template>,
    time: Option<u64>,
    from: Option<Handle>,
    stdin: Option<Stdin>,
    /// The directories that all applications have, and what is in them.
    shared: Vec<(Opened, Handle)>,
    /// All directories.
    order: Vec<Place>,
    files: Sealed,
    out: Out,
    /// What a program prints is a file at this path, instead of being printed.
    stdout: Option<Template>,
    pub(super) wishes: Wishes,
}

impl Recipe {
    /// Reads the command line, and brings what is shared to the node.
    pub(super) async fn prepare(arguments: &Arguments, uplink: &mut Uplink<'_>) -> anyhow::Result<Self> {
        let options = &arguments.options;
        let template = |text: &str| Template::new(text.as_bytes(), arguments.braces);
        let templates =
            |texts: &[String]| -> Vec<Template> { texts.iter().map(|text| template(text)).collect() };
        let out = Out::parse(arguments.out.as_deref())?;
        let mut shared = Vec::new();
        for mount in options.mounts()? {
            if [ROOT, &out.guest].contains(&&*mount.guest) {
                let message = format!("{} is not free for a --dir", mount.guest);
                let advice =
                    "the mapped files begin at /, and what is made is written to /out, or as --out says";
                return Err(Stop::new(Code::Usage, message).suggest(advice).into());
            }
            shared.push((Opened::new(&mount.guest, mount.is_read_only), mount.upload(uplink).await?));
        }
        let stdin = match &options.stdin {
            Some(path) => Some(stdin(path, arguments.braces, uplink).await?),
            None => None,
        };
        let from = match &options.from {
            Some(from) => Some(uplink.node.resolve(from).await?),
            None => None,
        };
        let order = directories(from, &out, &shared, stdin.as_ref(), uplink.node).await?;
        let mut recipe = Self {
            limits: options.limits()?,
            program: program(&arguments.program, uplink).await?,
            name: name_of(&arguments.program),
            arguments: templates(&arguments.arguments),
            variables: templates(&options.variables()?),
            entries: templates(&options.entries),
            seed: options.seed.as_deref().map(template),
            time: options.time,
            from,
            stdin,
            shared,
            order,
            files: shared_files(arguments, uplink).await?,
            out,
            stdout: arguments.stdout.as_deref().map(template),
            wishes: options.wishes(),
        };
        if !recipe.names_the_file() {
            recipe.arguments.push(Template::path());
        }
        uplink.flush().await?;
        Ok(recipe)
    }

    /// Whether a program is told which file it is for.
    fn names_the_file(&self) -> bool {
        let texts = [&self.arguments, &self.variables, &self.entries];
        texts.into_iter().flatten().any(Template::has_place) || matches!(self.stdin, Some(Stdin::Each(_)))
    }

    /// The file that is read from stdin, if that is another one for each, and not the mapped file itself.
    pub(super) fn stdin_of(&self, path: &[u8]) -> Option<StdinOf> {
        match self.stdin.as_ref()? {
            Stdin::Shared(_) => None,
            Stdin::Each(template) if template.is_path() => Some(StdinOf::Itself),
            Stdin::Each(template) => Some(StdinOf::Other(path_of(&template.fill(path)))),
        }
    }

    /// The application of a file.
    pub(super) fn application(
        &self,
        path: &[u8],
        given: Given,
        objects: &mut Objects,
    ) -> anyhow::Result<FileGoal> {
        let files = self.files.with(path, given.kind, given.handle, objects);
        let name = path.iter().rposition(|byte| *byte == b'/').unwrap_or(0);
        let out = nested(&path[..name], objects);
        let mut application = Application::new(self.limits, self.program, objects);
        application.text("arg", self.name.as_bytes());
        for argument in &self.arguments {
            application.text("arg", &argument.fill(path));
        }
        for variable in &self.variables {
            application.text("env", &variable.fill(path));
        }
        for place in &self.order {
            match *place {
                Place::Files => application.directory(ROOT.as_bytes(), files, true),
                Place::Out => application.directory(self.out.guest.as_bytes(), out[0], false),
                Place::Shared(at) => {
                    let (opened, tree) = &self.shared[at];
                    application.directory(&opened.path, *tree, opened.is_read_only);
                }
            }
        }
        let stdin = match self.stdin {
            Some(Stdin::Shared(handle)) => Some(handle),
            _ => given.stdin,
        };
        if let Some(stdin) = stdin {
            application.value("stdin", stdin);
        }
        if let Some(seed) = &self.seed {
            application.text("seed", &seed.fill(path));
        }
        if let Some(time) = self.time {
            application.value("time", Handle::u64(time));
        }
        for entry in &self.entries {
            application.entry(&entry.fill(path))?;
        }
        if let Some(snapshot) = self.from {
            application.from(snapshot);
        }
        Ok(FileGoal { goal: application.goal()?, out })
    }

    /// Which of a result's directories has what was made.
    pub(super) fn place_of_out(&self) -> Option<usize> {
        let shared: Vec<Opened> = self.shared.iter().map(|(opened, _)| opened.clone()).collect();
        place_of_out(&self.order, &shared)
    }

    /// Where what a program printed belongs among what it made, if it does.
    pub(super) fn stdout_of(&self, path: &[u8]) -> Option<Vec<u8>> {
        Some(self.stdout.as_ref()?.fill(path))
    }

    /// Where what programs made is written to on this machine, if it is.
    pub(super) fn target(&self) -> Option<&Path> {
        self.out.host.as_deref()
    }
}

/// What a program reads from stdin, if each reads something else.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StdinOf {
    /// The mapped file.
    Itself,
    Other(PathBuf),
}

fn path_of(bytes: &[u8]) -> PathBuf {
    std::ffi::OsStr::from_bytes(bytes).into()
}

/// The order of the directories. Of what goes on from a snapshot each needs to have its file nevertheless.
async fn directories(
    from: Option<Handle>,
    out: &Out,
    shared: &[(Opened, Handle)],
    stdin: Option<&Stdin>,
    node: &mut Node,
) -> anyhow::Result<Vec<Place>> {
    let snapshot = match from {
        Some(from) => Some(of_snapshot(from, node).await?),
        None => None,
    };
    let shared: Vec<Opened> = shared.iter().map(|(opened, _)| opened.clone()).collect();
    let (files, made) = (Opened::new(ROOT, true), Opened::new(&out.guest, false));
    let order = order(snapshot.as_deref(), &files, &made, &shared)?;
    if !order.contains(&Place::Files) && !matches!(stdin, Some(Stdin::Each(_))) {
        let stop = Stop::new(Code::Usage, "what goes on from the snapshot has no directory for its file");
        let advice = format!(
            "take the snapshot with `--dir EMPTY=/:ro`, and `--dir EMPTY={}` if it writes, EMPTY being an empty directory; or --stdin {{}}",
            out.guest
        );
        return Err(stop.suggest(advice).into());
    }
    Ok(order)
}

async fn stdin(path: &Path, braces: Braces, uplink: &mut Uplink<'_>) -> anyhow::Result<Stdin> {
    let template = Template::new(path.as_os_str().as_bytes(), braces);
    match template.has_place() {
        true => Ok(Stdin::Each(template)),
        false => Ok(Stdin::Shared(input(path, uplink).await?)),
    }
}

/// The files of `--with`, which are on the node afterwards or wait in the uplink.
async fn shared_files(arguments: &Arguments, uplink: &mut Uplink<'_>) -> anyhow::Result<Sealed> {
    let mut folder = Folder::default();
    let mut files = Files::default();
    files.expand(&arguments.with)?;
    let files = files.into_list();
    for path in &files {
        let metadata = std::fs::metadata(path).map_err(|error| unreadable(path, error))?;
        let kind = if is_executable(&metadata) { b'x' } else { b'f' };
        let leaf = Leaf { kind, handle: named(path).await?, owner: 0 };
        // Paths of one file system are files or directories, and not both.
        _ = folder.insert(path.as_os_str().as_bytes(), leaf);
    }
    let mut bundles = Bundles::default();
    let sealed = folder.seal(&mut bundles);
    if files.is_empty() || uplink.has(sealed.handle).await? {
        return Ok(sealed);
    }
    for path in &files {
        uplink.file(path).await?;
    }
    uplink.flush().await?;
    for bundle in bundles.finish() {
        uplink.node.put_bundle(bundle).await?;
    }
    Ok(sealed)
}

#[cfg(test)]
mod tests;
