// SPDX-License-Identifier: Apache-2.0
//! Java functions: made here into an executable, which is all that a node sees.
//!
//! What is uploaded is a directory of our own making: a script `main`, the server
//! that calls the handler (`guests/java`), the function's classes in one archive,
//! its libraries, and what the machine has loaded of all of them once (an archive
//! of class data), so that it is loaded sooner when an instance starts. It is made
//! once for the same sources, by the same JDK, in the user's cache.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, Instant, UNIX_EPOCH};

use crate::commands::deploy::build::{Ended, run_to_end};
use crate::directory::{Child, Plan, unreadable};
use crate::exit::{Code, Stop};
use crate::manifest::Function;
use crate::quantity::human_time;
use crate::requirements::{cache, prune, tag, touch};
use crate::upload::Uplink;

/// Functions that are kept made.
const KEPT_MAX: usize = 32;
/// Where Maven and Gradle have what is no code; in an archive it is at the top.
const RESOURCES: &str = "src/main/resources/";
/// Files of all functions have this time on a node (`sandbox::process::Layers`). The
/// machine uses its archive only while those that it was made of have theirs.
const FILES_TIME: Duration = Duration::from_secs(1);
/// Of the heap; the rest is what the machine itself needs.
const HEAP_PERCENT: u64 = 60;
/// Compiles quickly, and starts quickly: with the collector that the JDK's own archive is for.
const FLAGS: [&str; 6] = [
    "-XX:TieredStopAtLevel=1",
    "-XX:+UseG1GC",
    "-XX:ParallelGCThreads=1",
    "-XX:G1ConcRefinementThreads=0",
    "-XX:-UsePerfData",
    "-Xlog:disable",
];
/// When JDKs say that they wrote an archive.
const JAR_TIME: &str = "--date=1980-01-01T00:00:02Z";

macro_rules! runtime {
    ($name:literal) => {
        (
            concat!($name, ".java"),
            include_str!(concat!(
                "../../../guests/java/com/amazonaws/services/lambda/runtime/",
                $name,
                ".java"
            )),
        )
    };
}
macro_rules! server {
    ($name:literal) => {
        (concat!($name, ".java"), include_str!(concat!("../../../guests/java/sinew/", $name, ".java")))
    };
}

/// What is in every such function.
const SERVER: [(&str, &str); 16] = [
    runtime!("Client"),
    runtime!("ClientContext"),
    runtime!("CognitoIdentity"),
    runtime!("Context"),
    runtime!("LambdaLogger"),
    runtime!("RequestHandler"),
    runtime!("RequestStreamHandler"),
    server!("Answer"),
    server!("Beans"),
    server!("CallContext"),
    server!("Echo"),
    server!("Handler"),
    server!("Json"),
    server!("Main"),
    server!("Request"),
    server!("Sinew"),
];

/// What a function is made of.
#[derive(Default)]
struct Inputs {
    /// To be compiled.
    sources: Vec<PathBuf>,
    /// Archives, by their names.
    libraries: Vec<(String, PathBuf)>,
    /// Classes and what else is found by their loader, by its name there.
    others: Vec<(String, PathBuf)>,
}

/// The directory of a function that is made of these files.
pub(crate) async fn built(
    function: &Function,
    code: &Plan,
    source: &Path,
    uplink: &mut Uplink<'_>,
) -> anyhow::Result<PathBuf> {
    let inputs = Inputs::of(code, source);
    let jdk = jdk()?;
    let handler = function.handler.as_deref().unwrap_or_default();
    let mut hasher = blake3::Hasher::new();
    let heap = heap_mb(function).to_string();
    let texts = [jdk, handler, &heap].into_iter().chain(FLAGS).chain(SERVER.map(|(_, text)| text));
    for text in texts {
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    }
    let files = inputs.libraries.iter().chain(&inputs.others).map(|(name, path)| (name.as_str(), path));
    for (name, path) in files.chain(inputs.sources.iter().map(|path| ("", path))) {
        let bytes = fs::read(path).map_err(|error| unreadable(path, error))?;
        hasher.update(name.as_bytes()).update(&[0]).update(blake3::hash(&bytes).as_bytes());
    }
    let folder = cache("java")?.join(&hasher.finalize().to_hex()[..32]);
    if !folder.join("main").is_file() {
        let begun = Instant::now();
        uplink.say(&format!("compiling {} with {}", function.name, jdk.lines().next().unwrap_or_default()));
        let new = folder.with_extension(format!("{}.new", std::process::id()));
        let done = make(function, jdk, &inputs, &new).await;
        let moved = done.and_then(|()| match fs::rename(new.join("app"), &folder) {
            // Somebody else has just made the same.
            Err(_) if folder.join("main").is_file() => Ok(()),
            moved => moved.map_err(|error| unreadable(&folder, error)),
        });
        _ = fs::remove_dir_all(&new);
        moved?;
        uplink.say(&format!("compiled in {}", human_time(begun.elapsed())));
        folder.parent().into_iter().for_each(|cache| prune(cache, KEPT_MAX));
    }
    touch(&folder);
    Ok(folder)
}

impl Inputs {
    fn of(code: &Plan, source: &Path) -> Self {
        let mut inputs = Self::default();
        let files = code.folders.iter().flat_map(|folder| &folder.children);
        for path in files.filter_map(|(_, child)| match child {
            Child::File { path, .. } => Some(path),
            Child::Folder(_) | Child::Link(_) => None,
        }) {
            let name = path.strip_prefix(source).unwrap_or(path).to_string_lossy().into_owned();
            match path.extension().and_then(|ending| ending.to_str()) {
                Some("java") => inputs.sources.push(path.clone()),
                Some("jar") => inputs.libraries.push((name.replace('/', "-"), path.clone())),
                _ => {
                    let name = name.strip_prefix(RESOURCES).unwrap_or(&name).to_owned();
                    inputs.others.push((name, path.clone()));
                }
            }
        }
        inputs.sources.sort();
        inputs.libraries.sort();
        inputs.others.sort();
        inputs
    }
}

fn heap_mb(function: &Function) -> u64 {
    ((function.memory_bytes >> 20) * HEAP_PERCENT / 100).max(8)
}

/// The archive of what is in every function; made once for a JDK.
async fn server(jdk: &str, new: &Path) -> anyhow::Result<PathBuf> {
    let mut hasher = blake3::Hasher::new();
    for text in std::iter::once(jdk).chain(SERVER.map(|(_, text)| text)) {
        hasher.update(&(text.len() as u64).to_le_bytes()).update(text.as_bytes());
    }
    let file = cache("java-server")?.join(format!("{}.jar", &hasher.finalize().to_hex()[..32]));
    if !file.is_file() {
        let classes = new.join("server");
        let mut sources = Vec::new();
        for (name, text) in SERVER {
            sources.push(new.join(name));
            fs::write(new.join(name), text).map_err(|error| unreadable(new, error))?;
        }
        let what = "what calls handlers was not compiled";
        finished(javac(&classes).args(sources), what).await?;
        archive(&classes, &new.join("sinew.jar"), what).await?;
        fs::rename(new.join("sinew.jar"), &file).map_err(|error| unreadable(&file, error))?;
    }
    Ok(file)
}

/// Makes the directory `app` below `new`, which becomes the function's.
async fn make(function: &Function, jdk: &str, inputs: &Inputs, new: &Path) -> anyhow::Result<()> {
    let (app, classes) = (new.join("app"), new.join("classes"));
    for folder in [&app.join("lib"), &classes] {
        fs::create_dir_all(folder).map_err(|error| unreadable(folder, error))?;
    }
    let what = format!("{} was not compiled", function.name);
    let server = server(jdk, new).await?;
    fs::copy(&server, app.join("sinew.jar")).map_err(|error| unreadable(&server, error))?;
    let mut path = vec!["sinew.jar".to_owned(), "code.jar".to_owned()];
    for (name, from) in &inputs.libraries {
        let place = format!("lib/{name}");
        fs::copy(from, app.join(&place)).map_err(|error| unreadable(from, error))?;
        path.push(place);
    }
    for (name, from) in &inputs.others {
        let place = classes.join(name);
        fs::create_dir_all(place.parent().unwrap_or(&classes)).map_err(|error| unreadable(&place, error))?;
        fs::copy(from, &place).map_err(|error| unreadable(from, error))?;
    }
    if !inputs.sources.is_empty() {
        let seen: Vec<String> = path.iter().map(|place| app.join(place).display().to_string()).collect();
        let mut compile = javac(&classes);
        compile.arg("-cp").arg(format!("{}:{}", seen.join(":"), classes.display()));
        finished(compile.args(&inputs.sources), &what).await?;
    }
    archive(&classes, &app.join("code.jar"), &what).await?;
    for place in &path {
        let file = fs::File::options().append(true).open(app.join(place));
        let timed = file.and_then(|file| file.set_modified(UNIX_EPOCH + FILES_TIME));
        timed.map_err(|error| unreadable(&app.join(place), error))?;
    }
    let (path, memory_mb) = (path.join(":"), (function.memory_bytes >> 20).to_string());
    let handler = function.handler.as_deref().unwrap_or_default();
    let mut train = command("java");
    train.current_dir(&app).arg("-XX:ArchiveClassesAtExit=app.jsa").args(FLAGS).args(["-cp", &path]);
    let what = format!("{} has no handler {handler}", function.name);
    finished(train.args(["sinew.Main", "--train", handler, &memory_mb]), &what).await?;
    let script = format!(
        "#!/bin/sh\nexec java -XX:SharedArchiveFile=app.jsa {} -Xmx{}m -cp '{path}' sinew.Main '{handler}' {memory_mb}\n",
        FLAGS.join(" "),
        heap_mb(function)
    );
    let main = app.join("main");
    fs::write(&main, script).map_err(|error| unreadable(&main, error))?;
    let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    fs::set_permissions(&main, executable).map_err(|error| unreadable(&main, error))
}

fn javac(into: &Path) -> Command {
    let mut compile = command("javac");
    compile.args(["-g", "-encoding", "UTF-8", "-d"]).arg(into);
    compile
}

/// Puts all files below a folder into an archive, whose bytes tell nothing of when.
async fn archive(folder: &Path, file: &Path, what: &str) -> anyhow::Result<()> {
    let mut jar = command("jar");
    jar.args(["--create", "--no-manifest", JAR_TIME, "--file"]).arg(file).arg("-C").arg(folder).arg(".");
    finished(&mut jar, what).await
}

#[expect(clippy::disallowed_methods, reason = "the JDK makes a function of its sources")]
fn command(program: &str) -> Command {
    Command::new(program)
}

async fn finished(command: &mut Command, what: &str) -> anyhow::Result<()> {
    let command = std::mem::replace(command, self::command("true"));
    let Ended { status, printed } = run_to_end(command, what).await?;
    if status.success() {
        return Ok(());
    }
    let stop = Stop::new(Code::Failed, format!("{what}:\n{}", printed.trim_end()));
    Err(stop.suggest("correct it; what served before still does").into())
}

/// Which JDK compiles, and runs what it has compiled.
fn jdk() -> anyhow::Result<&'static str> {
    static TAG: OnceLock<String> = OnceLock::new();
    let advice = "a JDK of version 17 or later: apt-get install openjdk-17-jdk-headless";
    tag(&TAG, "javac", &["--version"], advice)?;
    static MACHINE: OnceLock<String> = OnceLock::new();
    tag(&MACHINE, "java", &["--version"], advice)
}
