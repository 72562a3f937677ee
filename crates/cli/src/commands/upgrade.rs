// SPDX-License-Identifier: Apache-2.0
//! `sinew upgrade`: brings a home that an older version wrote up to date.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use serde_json::json;

use crate::exit::{Code, Stop};
use crate::home::default_home;
use crate::output::Output;
use crate::progress::Progress;
use crate::quantity::grouped;

/// Which home.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  cp -a ~/.local/share/sinew ~/sinew-before   a copy, to go back\n  sinew upgrade\n\n\
    The node must not run. A home that was upgraded cannot be used by the older version. What is interrupted\n\
    goes on when it is run again."
)]
pub(crate) struct Arguments {
    /// Where the node keeps everything
    #[arg(long, value_name = "DIR", env = "SINEW_HOME")]
    home: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, output: &Output) -> anyhow::Result<()> {
    let home = match &arguments.home {
        Some(home) => home.clone(),
        None => default_home().context("there is no home folder; name one with --home")?,
    };
    if !home.join("FORMAT").exists() {
        let stop = Stop::new(Code::NotFound, format!("{} is no home of a node", home.display()));
        return Err(stop.suggest("name it with --home").into());
    }
    let mut progress = Progress::things(output, "objects");
    let upgraded = node::upgrade(&home, |done, all| progress.reach(done, all))?;
    progress.end();
    if output.is_json() {
        let objects = upgraded.map(|upgraded| upgraded.objects);
        let damaged = upgraded.map(|upgraded| upgraded.damaged);
        return output.json(&json!({"home": home, "objects": objects, "damaged": damaged}));
    }
    let Some(upgraded) = upgraded else {
        return output.line(&format!("{} is up to date", home.display()));
    };
    output.line(&format!("{} is up to date: {} objects moved", home.display(), grouped(upgraded.objects)))?;
    if upgraded.damaged > 0 {
        output.say(&format!(
            "{} objects were damaged before; they are in {}",
            grouped(upgraded.damaged),
            home.join("quarantine").display()
        ));
    }
    Ok(())
}
