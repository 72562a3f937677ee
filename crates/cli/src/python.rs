// SPDX-License-Identifier: Apache-2.0
//! Which Python installs packages and compiles modules that a node is to load.
//!
//! Both are for one version of Python and one kind of machine: the node's. It says which that is, and one of the
//! same is looked for here: `python3`, the node's own file, for most nodes are on this machine, and `python3.14` in
//! `PATH`. Where there is none, pip is told what wheels have to be for, and nothing is compiled.

use std::collections::HashMap;
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

/// What native code for an interpreter is made for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The node's interpreter, on its machine.
    program: PathBuf,
    version: String,
    /// As `cpython-314-x86_64-linux-gnu`.
    abi: String,
}

impl Wanted {
    /// What a node says; `None` if it does not.
    pub(crate) fn read(told: &Value) -> Option<Self> {
        let text = |name: &str| told[name].as_str().filter(|text| !text.is_empty());
        Some(Self {
            program: text("program")?.into(),
            version: text("version")?.into(),
            abi: text("abi")?.into(),
        })
    }

    /// `3.14` of `3.14.2`.
    fn minor(&self) -> &str {
        self.version.rfind('.').map_or(&self.version, |end| &self.version[..end])
    }
}

/// A Python that is here.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Local {
    program: PathBuf,
    /// What it has in the names of modules that it compiled.
    cache_tag: String,
    abi: String,
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
    pub(crate) fn of(wanted: Option<Wanted>) -> anyhow::Result<Self> {
        let usual = local(Path::new(USUAL));
        let found = wanted.as_ref().and_then(|wanted| {
            let named = PathBuf::from(format!("python{}", wanted.minor()));
            let others = [wanted.program.clone(), named];
            let mut all = usual.clone().into_iter().chain(others.iter().filter_map(|program| local(program)));
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
            Some(wanted) => format!("{} for {} {}", self.local.told, wanted.abi, wanted.minor()),
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
        let has_pip = self.command().args(["-m", "pip", "--version"]).output();
        let mut pip = if has_pip.is_ok_and(|output| output.status.success()) {
            self.command()
        } else {
            Command::new(USUAL)
        };
        pip.args(["-m", "pip"]);
        if pip.get_program() != self.local.program.as_os_str() {
            pip.arg("--python").arg(&self.local.program);
        }
        pip.arg("install");
        if let Some(wanted) = &self.other {
            pip.args(["--only-binary", ":all:"]).args(wheels_for(wanted));
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
                wanted.minor()
            ),
        }
    }
}

/// What pip is told of wheels for another Python or another kind of machine.
fn wheels_for(wanted: &Wanted) -> Vec<String> {
    let mut parts = wanted.abi.splitn(3, '-');
    let (_, number, rest) =
        (parts.next(), parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
    let machine = rest.split('-').next().unwrap_or_default();
    let option = |name: &str, value: String| [format!("--{name}"), value];
    let mut all = Vec::new();
    all.extend(option("python-version", wanted.minor().to_owned()));
    all.extend(option("implementation", "cp".to_owned()));
    for abi in [format!("cp{number}"), "abi3".to_owned(), "none".to_owned()] {
        all.extend(option("abi", abi));
    }
    for version in MANYLINUX {
        all.extend(option("platform", format!("manylinux_{version}_{machine}")));
    }
    all.extend(option("platform", format!("manylinux2014_{machine}")));
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
    let output = Command::new(program).args(["-c", FACTS]).output();
    let told = output.ok().filter(|output| output.status.success());
    let found = told.and_then(|output| {
        let told = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let mut words = told.split(' ').map(str::to_owned);
        let (cache_tag, abi) = (words.next()?, words.next()?);
        Some(Local { program: program.to_owned(), cache_tag, abi, told })
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
        Wanted::read(&json!({"program": program, "version": version, "abi": abi})).unwrap()
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
        for told in
            [json!(null), json!({}), json!({"program": "/usr/bin/python3", "version": "", "abi": "x"})]
        {
            assert_eq!(Wanted::read(&told), None);
        }
    }
}
