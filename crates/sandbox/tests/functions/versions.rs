// SPDX-License-Identifier: Apache-2.0
//! Interpreters of other versions than the one in `PATH`.
//!
//! Those of Python are looked for where they are usually installed, and the newest are
//! fetched from Debian's archive; those of Node are fetched from npm, which carries the program
//! as a package. What is not there is skipped with a message.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use sandbox::process::{FunctionsOptions, Language, Weakness};

use crate::Case;
use crate::world::{World, options};

pub(crate) const PYTHON: &[Case] = &[("other_versions_fork", other_pythons_fork)];
pub(crate) const NODE: &[Case] = &[("other_versions_serve", other_nodes_serve)];

/// Those that are fetched.
const FETCHED: [&str; 2] = ["3.14", "3.15"];

/// A Python of this version in a folder of the tests' own.
fn fetched_python(version: &str) -> Option<PathBuf> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../guests/python/fetch_python.py");
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("python{version}"));
    let output = Command::new("python3").arg("-B").arg(script).arg(version).arg(folder).output().unwrap();
    if !output.status.success() {
        let why = String::from_utf8_lossy(&output.stderr);
        println!(
            "skipped: Python {version} cannot be fetched: {}",
            why.trim().lines().last().unwrap_or_default()
        );
        return None;
    }
    Some(PathBuf::from(String::from_utf8_lossy(&output.stdout).trim()))
}

/// Pythons of later minor versions than 3.11.
fn pythons() -> Vec<PathBuf> {
    let folders = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect::<Vec<_>>());
    let mut found: Vec<PathBuf> = Vec::new();
    for minor in 12..14 {
        let in_path = folders.iter().flatten().map(|folder| folder.join(format!("python3.{minor}")));
        let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
        let versions = std::fs::read_dir(home.join(".pyenv/versions")).into_iter().flatten().flatten();
        let of_pyenv = versions.map(|version| version.path().join(format!("bin/python3.{minor}")));
        let mut all = in_path.chain(of_pyenv);
        found.extend(all.find(|program| says_version(program, &format!("Python 3.{minor}."))));
    }
    found.extend(FETCHED.iter().filter_map(|version| fetched_python(version)));
    found
}

fn says_version(program: &Path, begins: &str) -> bool {
    let asked = Command::new(program).arg("--version").stderr(Stdio::null()).output();
    asked.is_ok_and(|output| String::from_utf8_lossy(&output.stdout).starts_with(begins))
}

fn other_pythons_fork(language: Language) {
    let found = pythons();
    if found.is_empty() {
        println!("skipped: there is no Python later than 3.11");
    }
    for interpreter in found {
        let name = interpreter.display().to_string();
        assert!(language.facts(&interpreter).unwrap().maps_values, "{name}");
        let world = World::with(FunctionsOptions { interpreter, ..options(language) }, Weakness::NONE);
        assert_eq!(world.functions.why_cold(), None, "{name}");
        let version = world.says("return ('%d.%d' % sys.version_info[:2]).encode()");
        assert!(name.contains(&version), "{name} says {version}");
        // What is drawn differs, and what is refused is refused.
        let draw = "import random, uuid\nreturn repr([random.random(), uuid.uuid4().hex]).encode()";
        assert_ne!(world.says(draw), world.says(draw), "{name}");
        let write = "try:\n    open('/usr/x', 'w')\nexcept OSError as error:\n    return b'refused'";
        assert_eq!(world.says(write), "refused", "{name}");
        world.assert_others_are_served();
    }
}

/// A Node of this major version, fetched; or why there is none.
fn fetched_node(major: u32) -> Result<PathBuf, String> {
    let architecture = if cfg!(target_arch = "x86_64") { "x64" } else { "arm64" };
    let package = format!("node-linux-{architecture}");
    // Containers have a /tmp of their own, so it cannot be below that.
    let folder = PathBuf::from(format!("/var/tmp/sinew-test-node-{major}"));
    let program = folder.join("node_modules").join(&package).join("bin/node");
    let begins = format!("v{major}.");
    if says_version(&program, &begins) {
        return Ok(program);
    }
    std::fs::create_dir_all(&folder).map_err(|error| error.to_string())?;
    let mut npm = Command::new("npm");
    npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--no-save", "--prefix"]);
    npm.arg(&folder).arg(format!("{package}@{major}")).stdin(Stdio::null());
    let output = npm.output().map_err(|error| format!("npm cannot be run: {error}"))?;
    if says_version(&program, &begins) {
        Ok(program)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

fn other_nodes_serve(language: Language) {
    for major in [22, 24] {
        let interpreter = match fetched_node(major) {
            Ok(program) => program,
            Err(why) => {
                println!("skipped: no Node {major} can be fetched: {why}");
                continue;
            }
        };
        let world = World::with(FunctionsOptions { interpreter, ..options(language) }, Weakness::NONE);
        // Whether it can be forked is that version's matter; that it is told is ours.
        match world.functions.why_cold() {
            None => eprintln!("Node {major} is forked"),
            Some(why) => eprintln!("Node {major} is started cold: {why}"),
        }
        let version = world.run("exports.apply = () => Buffer.from(process.version)").unwrap();
        assert!(version.starts_with(format!("v{major}.").as_bytes()), "{version:?}");
        let draw =
            "exports.apply = () => Buffer.from([Math.random(), require('crypto').randomUUID()].join())";
        assert_ne!(world.run(draw).unwrap(), world.run(draw).unwrap());
        let write = "exports.apply = () => { try { require('fs').writeFileSync('/usr/x', ''); } \
                     catch (error) { return Buffer.from(error.code); } };";
        assert_eq!(world.run(write).unwrap(), b"EROFS");
        world.assert_others_are_served();
    }
}
