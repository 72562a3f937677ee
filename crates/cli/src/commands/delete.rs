// SPDX-License-Identifier: Apache-2.0
//! `sinew delete`: removes a function, after asking.

use std::io::{self, BufRead as _, IsTerminal as _, Read as _};

use clap::Args;
use serde_json::json;

use crate::exit::{Code, Stop};
use crate::node_api::Node;
use crate::output::Output;

/// Bytes of an answer that are read.
const ANSWER_BYTES_MAX: u64 = 64;

/// Which function.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// The function
    name: String,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let name = &arguments.name;
    if !arguments.yes {
        // Whoever mistyped the name hears of it before the question.
        node.function(name).await?;
        confirm(name, output).await?;
    }
    node.delete_function(name).await?;
    if output.is_json() {
        return output.json(&json!({"name": name, "deleted": true}));
    }
    output.line(&format!("{name}  deleted"))
}

async fn confirm(name: &str, output: &Output) -> anyhow::Result<()> {
    if !io::stdin().is_terminal() {
        let stop = Stop::new(Code::Usage, format!("{name} and all of its versions would be deleted"));
        return Err(stop.suggest(format!("if that is meant: sinew delete {name} --yes")).into());
    }
    output.say(&format!("delete {name} and all of its versions? [y/N]"));
    // Ctrl-C shall not wait for the answer.
    let answer = tokio::task::spawn_blocking(|| {
        let mut answer = String::new();
        io::stdin().lock().take(ANSWER_BYTES_MAX).read_line(&mut answer).map(|_| answer)
    })
    .await??;
    if matches!(answer.trim().to_lowercase().as_str(), "y" | "yes") {
        return Ok(());
    }
    Err(Stop::new(Code::Interrupted, format!("{name} was not deleted")).into())
}
