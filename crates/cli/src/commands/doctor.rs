// SPDX-License-Identifier: Apache-2.0
//! `sinew doctor`: whether this machine can run a node, and what to do if not.

use std::path::PathBuf;

use clap::Args;
use serde_json::json;

use super::up::LISTEN_DEFAULT;
use super::version::{COMMIT, VERSION};
use crate::exit::{Code, Stop};
use crate::home::default_home;
use crate::output::Output;

/// What a node would be started with.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where the node keeps its data
    #[arg(long, value_name = "DIR", env = "SINEW_HOME")]
    home: Option<PathBuf>,
    /// The Python that functions run on [default: python3]
    #[arg(long, value_name = "PROGRAM", env = "SINEW_PYTHON")]
    python: Option<PathBuf>,
    /// The Node.js that functions run on [default: node]
    #[arg(long, value_name = "PROGRAM", env = "SINEW_NODEJS")]
    nodejs: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, output: &Output) -> anyhow::Result<()> {
    let options = node::Options {
        home: arguments.home.clone().or_else(default_home),
        listen: Some(LISTEN_DEFAULT),
        python: arguments.python.clone(),
        nodejs: arguments.nodejs.clone(),
        version: VERSION.to_owned(),
        commit: COMMIT.to_owned(),
        sandbox_init: super::sandbox_init::command(),
        ..node::Options::default()
    };
    let checks = node::doctor(&options);
    let failed = checks.iter().filter(|check| !check.is_ok).count();
    for check in &checks {
        if output.is_json() {
            output.json(&json!({
                "name": check.name, "ok": check.is_ok, "detail": check.detail, "remedy": check.remedy,
            }))?;
            continue;
        }
        output.line(&format!("{}  {:<13} {}", output.mark(check.is_ok), check.name, check.detail))?;
        if !check.is_ok && !check.remedy.is_empty() {
            output.line(&format!("    → {}", check.remedy))?;
        }
    }
    if failed == 0 {
        return Ok(());
    }
    let message = format!("{failed} of {} checks did not pass", checks.len());
    Err(Stop::new(Code::Failed, message).suggest("the remedies are above").into())
}
