// SPDX-License-Identifier: Apache-2.0
//! Which Python installs packages and compiles modules that a node is to load.
//!
//! Both are for one version of Python and one kind of machine: the node's. It says which that is, and one of the
//! same is looked for here: `python3`, the node's own file, for most nodes are on this machine, and `python3.14` in
//! `PATH`. Where there is none, pip is told what wheels have to be for, and nothing is compiled.

use std::collections::HashMap;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{LazyLock, Mutex, PoisonError};

use serde_json::Value;

use crate::exit::{Code, Stop};

/// What is tried first, and used where the node says nothing.
const USUAL: &str = "python3";
const FACTS: &str = "import _imp, sys, sysconfig; print(sys.implementation.cache_tag, \
    _imp.extension_suffixes()[0][1:-3], sys.version.split()[0], sysconfig.get_platform())";
/// Of the C library that wheels were made for: as old as the oldest that Python itself is made for, and no newer than
/// that of any system that a node runs on.
const MANYLINUX: [&str; 6] = ["2_28", "2_27", "2_24", "2_17", "2_12", "2_5"];
const MUSLLINUX: [&str; 2] = ["1_2", "1_1"];

/// What native code for an interpreter is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The node's interpreter, if that is on this machine: of another one nothing that it names is run here.
    program: Option<PathBuf>,
    version: String,
    /// `3.14` of `3.14.2`.
    minor: String,
    /// As `cpython-314-x86_64-linux-gnu`.
    abi: String,
}

impl Wanted {
    /// What a node says; `None` if it does not. `is_here`: it is on this machine.
    pub(crate) fn read(told: &Value, is_here: bool) -> Option<Self> {
        let text = |name: &str| told[name].as_str().filter(|text| !text.is_empty());
        let program =
            text("program").filter(|_| is_here).map(PathBuf::from).filter(|program| is_safe(program));
        let version = text("version")?;
        let mut numbers = version.split('.').map(|number| number.parse::<u16>().ok());
        let minor = format!("{}.{}", numbers.next()??, numbers.next()??);
        Some(Self { program, version: version.to_owned(), minor, abi: text("abi")?.to_owned() })
    }
}

/// Whether nobody but root and whoever asks can have put something else there, or at any link's end: a node may be
/// somebody else's.
fn is_safe(program: &Path) -> bool {
    let Ok(end) = program.canonicalize() else { return false };
    let user = Path::new("/proc/self").metadata().map_or(0, |own| own.uid());
    // Whoever may write to a sticky folder can take nothing of others away there.
    let is_theirs = |path: &Path| {
        let found = path.symlink_metadata();
        found.is_ok_and(|found| {
            let is_open = !found.is_symlink() && found.mode() & 0o1002 == 0o002;
            [0, user].contains(&found.uid()) && !is_open
        })
    };
    program.is_absolute() && program.ancestors().chain(end.ancestors()).all(is_theirs)
}

/// A Python that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Local {
    program: PathBuf,
    /// What it has in the names of modules that it compiled.
    cache_tag: String,
    abi: String,
    /// As `3.14`.
    minor: String,
    /// All of that, its version and the kind of machine.
    told: String,
}

/// What installs, and compiles if it can.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Python {
    local: Local,
    /// It is not what the node runs: that is.
    other: Option<Wanted>,
}

impl Python {
    /// The one for a node that wants this.
    ///
    /// # Errors
    /// There is none here at all.
    pub(crate) fn of(wanted: Option<Wanted>) -> Result<Self, Stop> {
        let usual = local(Path::new(USUAL));
        let found = wanted.as_ref().and_then(|wanted| {
            let named = PathBuf::from(format!("python{}", wanted.minor));
            let others = wanted.program.iter().chain(std::iter::once(&named));
            let mut all = usual.clone().into_iter().chain(others.filter_map(|program| local(program)));
            all.find(|local| local.abi == wanted.abi)
        });
        if let Some(local) = found {
            return Ok(Self { local, other: None });
        }
        let local = usual.ok_or_else(|| {
            Stop::new(Code::Failed, format!("{USUAL} is not there, which this function needs"))
                .suggest("pip comes with Python: apt-get install python3-pip")
        })?;
        Ok(Self { local, other: wanted })
    }

    /// Whatever makes a difference to what is installed and compiled.
    pub(crate) fn key(&self) -> String {
        match &self.other {
            None => self.local.told.clone(),
            Some(wanted) => format!("{} for {} {}", self.local.told, wanted.abi, wanted.minor),
        }
    }

    /// What it has in the names of modules that it compiled; `None` if the node would not load these.
    pub(crate) fn cache_tag(&self) -> Option<&str> {
        self.other.is_none().then_some(self.local.cache_tag.as_str())
    }

    /// For people, where it is not the one that the node runs.
    pub(crate) fn caution(&self) -> Option<String> {
        let wanted = self.other.as_ref()?;
        Some(format!(
            "the node runs Python {} ({}), and there is none such here: only packages that have wheels for it can be installed",
            wanted.version, wanted.abi
        ))
    }

    #[expect(clippy::disallowed_methods, reason = "Python compiles its modules itself")]
    pub(crate) fn command(&self) -> Command {
        Command::new(&self.local.program)
    }

    /// `pip install` for the node.
    #[expect(clippy::disallowed_methods, reason = "pip installs what the function names")]
    pub(crate) fn pip_install(&self) -> Command {
        // pip runs itself by the Python that it is told to install for. One that is too old for that still tells its version, but
        // not what is installed: Debian 12's is for Python 3.12 and later.
        let can = |pip: &mut Command| {
            pip.args(["list", "--disable-pip-version-check"]).output().is_ok_and(|told| told.status.success())
        };
        let own = || {
            let mut pip = self.command();
            pip.args(["-m", "pip"]);
            pip
        };
        let usual = |program: Option<&Path>| {
            let mut pip = Command::new(USUAL);
            pip.args(["-m", "pip"]);
            program.iter().for_each(|program| _ = pip.arg("--python").arg(program));
            pip
        };
        let program = self.local.program.as_path();
        let (mut pip, are_wheels) = if self.other.is_some() {
            (usual(None), true)
        } else if can(&mut own()) {
            (own(), false)
        } else {
            // Whoever has no pip at all is told by it.
            let can_usual = program != Path::new(USUAL) && can(&mut usual(Some(program)));
            (usual(Some(program).filter(|_| can_usual)), !can_usual)
        };
        pip.arg("install").env("PYTHONSAFEPATH", "1");
        if are_wheels {
            let own = || (self.local.abi.as_str(), self.local.minor.as_str());
            let (abi, minor) = self.other.as_ref().map_or_else(own, |wanted| (&wanted.abi, &wanted.minor));
            pip.args(["--only-binary", ":all:"]).args(wheels_for(abi, minor));
        }
        pip
    }

    /// What to do if it fails.
    pub(crate) fn advice(&self) -> String {
        match &self.other {
            None => "correct the versions that are asked for; nothing was deployed".to_owned(),
            Some(wanted) => format!(
                "install python{} with pip here, which is what the node runs, or start the node with a Python that is here \
                 (`sinew up --python`); nothing was deployed",
                wanted.minor
            ),
        }
    }
}

/// What pip is told of wheels for another Python or another kind of machine.
fn wheels_for(abi: &str, minor: &str) -> Vec<String> {
    let mut parts = abi.splitn(3, '-').skip(1);
    let (number, system) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let machine = match system.split('-').next().unwrap_or_default() {
        "i386" => "i686",
        "arm" => "armv7l",
        "powerpc64le" => "ppc64le",
        machine => machine,
    };
    let platforms: Vec<String> = if system.ends_with("musl") {
        MUSLLINUX.iter().map(|version| format!("musllinux_{version}_{machine}")).collect()
    } else {
        let versions = MANYLINUX.iter().map(|version| format!("manylinux_{version}_{machine}"));
        versions.chain([format!("manylinux2014_{machine}")]).collect()
    };
    let mut all =
        vec!["--python-version".to_owned(), minor.to_owned(), "--implementation".to_owned(), "cp".to_owned()];
    for abi in [&format!("cp{number}"), "abi3", "none"] {
        all.extend(["--abi".to_owned(), abi.to_owned()]);
    }
    all.extend(platforms.into_iter().flat_map(|platform| ["--platform".to_owned(), platform]));
    all
}

/// What a program says of itself, asked once.
#[expect(clippy::disallowed_methods, reason = "the interpreter is asked what it is")]
fn local(program: &Path) -> Option<Local> {
    static KNOWN: LazyLock<Mutex<HashMap<PathBuf, Option<Local>>>> = LazyLock::new(Mutex::default);
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known.get(program) {
        return found.clone();
    }
    let output = Command::new(program).args(["-I", "-c", FACTS]).output();
    let told = output.ok().filter(|output| output.status.success());
    let found = told.and_then(|output| {
        let told = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let mut words = told.split(' ').map(str::to_owned);
        let (cache_tag, abi, version) = (words.next()?, words.next()?, words.next()?);
        let minor = version.rsplit_once('.').map_or(version.as_str(), |(minor, _)| minor).to_owned();
        Some(Local { program: program.to_owned(), cache_tag, abi, minor, told })
    });
    known.insert(program.to_owned(), found.clone());
    found
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use serde_json::json;

    use super::*;

    fn wanted(program: &str, version: &str, abi: &str) -> Wanted {
        Wanted::read(&json!({"program": program, "version": version, "abi": abi}), true).unwrap()
    }

    #[test]
    fn the_one_that_is_as_the_nodes_is_found_by_any_of_its_names() {
        let usual = Python::of(None).unwrap();
        let own = &usual.local;
        assert_eq!(usual.local.program, Path::new(USUAL));
        let version = own.told.split(' ').nth(2).unwrap();
        let same = Python::of(Some(wanted("/nowhere/python", version, &own.abi))).unwrap();
        assert_eq!((&same, same.cache_tag()), (&usual, Some(own.cache_tag.as_str())));
        assert_eq!((same.caution(), same.pip_install().get_program()), (None, USUAL.as_ref()));
    }

    #[test]
    fn pip_is_told_what_wheels_are_for_where_there_is_none() {
        let other = wanted("/nowhere/python", "3.99.1", "cpython-399-aarch64-linux-gnu");
        let python = Python::of(Some(other)).unwrap();
        assert_eq!(python.cache_tag(), None);
        assert!(python.caution().unwrap().contains("Python 3.99.1 (cpython-399-aarch64-linux-gnu)"));
        assert!(python.advice().contains("python3.99"));
        assert_ne!(python.key(), Python::of(None).unwrap().key());
        let pip = python.pip_install();
        let told: Vec<_> = pip.get_args().map(|argument| argument.to_str().unwrap()).collect();
        for pair in [
            ["--only-binary", ":all:"],
            ["--python-version", "3.99"],
            ["--abi", "cp399"],
            ["--abi", "none"],
            ["--platform", "manylinux_2_17_aarch64"],
        ] {
            assert!(told.windows(2).any(|found| found == pair), "{pair:?} in {told:?}");
        }
    }

    #[test]
    fn a_node_that_says_nothing_gets_what_is_made_here() {
        for told in [
            json!(null),
            json!({}),
            json!({"program": "/usr/bin/python3", "version": "", "abi": "x"}),
            json!({"version": "/../x.1", "abi": "x"}),
        ] {
            assert_eq!(Wanted::read(&told, true), None);
        }
    }

    #[test]
    fn nothing_that_a_node_elsewhere_names_is_run() {
        let folder = tempfile::tempdir().unwrap();
        let (program, mark) = (folder.path().join("python3.99"), folder.path().join("ran"));
        std::fs::write(&program, format!("#!/bin/sh\ntouch {}\n", mark.display())).unwrap();
        std::fs::set_permissions(&program, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let told = json!({"program": program, "version": "3.99.1", "abi": "cpython-399-x86_64-linux-gnu"});
        Python::of(Wanted::read(&told, false)).unwrap();
        assert!(!mark.exists());
        Python::of(Wanted::read(&told, true)).unwrap();
        assert!(mark.exists(), "the test can see it");
    }

    #[test]
    fn what_others_can_have_put_there_is_not_run() {
        let folder = tempfile::tempdir().unwrap();
        let (open, link) = (folder.path().join("open"), folder.path().join("open/python3"));
        let program = folder.path().join("python3");
        std::fs::write(&program, "").unwrap();
        std::fs::create_dir(&open).unwrap();
        std::os::unix::fs::symlink(&program, &link).unwrap();
        let allow = |mode| {
            std::fs::set_permissions(&open, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap()
        };
        allow(0o755);
        assert!(is_safe(&program) && is_safe(&link));
        allow(0o777);
        assert!(is_safe(&program) && !is_safe(&link), "somebody else may put another link there");
        assert!(!is_safe(Path::new("python3")) && !is_safe(Path::new("/nowhere/python3")));
    }
}
