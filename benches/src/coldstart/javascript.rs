// SPDX-License-Identifier: Apache-2.0
//! The ways to the first line of a function in JavaScript.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use sandbox::process::{FunctionsOptions, Language};

use super::{Bundle, Node, add_ms, percentile, plain_start, settle};
use crate::figures::Report;

const READY: usize = 2;
/// Modules that the function uses, in the template as in a cold start.
const MODULES: [&str; 2] = ["http", "crypto"];
/// The first line of the handler reads the clock.
const HANDLER: &str = "require('http');\nrequire('crypto');\n\
    exports.apply = () => {\n  const started = process.hrtime.bigint();\n  return Buffer.from(String(started));\n};\n";

/// Each way, and what was measured of it, in nanoseconds.
pub(super) struct Ways {
    ready: Node,
    bare: Node,
    blank: Node,
    runc: Option<Bundle>,
    interpreter: PathBuf,
    folder: tempfile::TempDir,
    first: Vec<f64>,
    answered: Vec<f64>,
    bare_first: Vec<f64>,
    blank_first: Vec<f64>,
    plain: Vec<f64>,
    contained: Vec<f64>,
}

fn options(blanks: usize) -> FunctionsOptions {
    FunctionsOptions {
        imports: MODULES.map(str::to_owned).into(),
        ready: READY,
        blanks,
        ..FunctionsOptions::new(Language::Node)
    }
}

/// The interpreter that the template uses.
fn interpreter() -> anyhow::Result<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("node")).find(|file| file.exists());
    found.context("there is no node in PATH; apt-get install nodejs")
}

impl Ways {
    pub(super) fn new(report: &mut Report) -> anyhow::Result<Self> {
        let interpreter = interpreter()?;
        let folder = tempfile::tempdir()?;
        let script = format!("{HANDLER}console.log(String(exports.apply()));\n");
        std::fs::write(folder.path().join("x.js"), &script)?;
        let seen: Vec<PathBuf> = ["/usr", "/bin", "/lib", "/lib64"].map(PathBuf::from).into();
        let seen: Vec<PathBuf> = seen.into_iter().filter(|path| path.exists()).collect();
        let runc = report.peer("runc with node", || {
            let mut bundle = Bundle::new(&interpreter, ("x.js", &script), &seen)?;
            bundle.start().map(|_| bundle)
        });
        let (ready, blank) = (Node::with(options(0))?, Node::with(options(READY))?);
        let bare = Node::uncontained(options(0))?;
        for node in [&ready, &blank, &bare] {
            for _ in 0..3 {
                node.start(HANDLER)?;
            }
        }
        let (first, answered, bare_first) = (Vec::new(), Vec::new(), Vec::new());
        let (blank_first, plain, contained) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self {
            ready,
            bare,
            blank,
            runc,
            interpreter,
            folder,
            first,
            answered,
            bare_first,
            blank_first,
            plain,
            contained,
        })
    }

    /// Measures each way once, the slow ones if it is their turn.
    pub(super) fn round(&mut self, with_slow: bool) -> anyhow::Result<()> {
        settle(&self.ready, READY);
        self.bare_first.push(self.bare.start(HANDLER)?.first_line);
        settle(&self.ready, READY);
        let start = self.ready.start(HANDLER)?;
        self.first.push(start.first_line);
        self.answered.push(start.answered);
        settle(&self.ready, READY);
        settle(&self.blank, READY);
        self.blank_first.push(self.blank.start(HANDLER)?.first_line);
        settle(&self.blank, READY);
        if with_slow {
            let script: &Path = &self.folder.path().join("x.js");
            self.plain.push(plain_start(&self.interpreter, script)?);
            if let Some(runc) = &mut self.runc {
                self.contained.push(runc.start()?);
            }
        }
        Ok(())
    }

    pub(super) fn report(&self, report: &mut Report) {
        let p50 = percentile(&self.first, 0.5);
        let meaning = "new container, prepared, to the first line";
        add_ms(report, "node_first_line_p50_ms", &self.first, 0.5, meaning);
        add_ms(report, "node_first_line_p99_ms", &self.first, 0.99, meaning);
        add_ms(report, "node_answered_p50_ms", &self.answered, 0.5, "until the result is here");
        add_ms(
            report,
            "node_blank_p50_ms",
            &self.blank_first,
            0.5,
            "instance forked and confined in advance",
        );
        add_ms(
            report,
            "node_bare_fork_p50_ms",
            &self.bare_first,
            0.5,
            "fork of the same template, no container",
        );
        add_ms(report, "node_plain_p50_ms", &self.plain, 0.5, "node x.js, no container");
        if !self.contained.is_empty() {
            let (cold, n) = (percentile(&self.contained, 0.5), self.contained.len());
            add_ms(report, "node_cold_container_p50_ms", &self.contained, 0.5, "runc + cold node");
            let peer = "runc + cold node, p50";
            let blank = cold / percentile(&self.blank_first, 0.5);
            report.add("node_times_faster_than_cold_container", blank, "x", peer, n);
            report.add("node_forked_times_faster_than_cold", cold / p50, "x", peer, n);
        }
    }
}
