// SPDX-License-Identifier: Apache-2.0
//! `sinew completion SHELL`: a script that completes command lines.

use clap::{Args, CommandFactory};
use clap_complete::Shell;

/// For which shell.
#[derive(Debug, Args)]
#[command(after_help = "For bash: sinew completion bash > ~/.local/share/bash-completion/completions/sinew")]
pub(crate) struct Arguments {
    /// The shell
    #[arg(value_enum)]
    shell: Shell,
}

pub(crate) fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let mut script = Vec::new();
    let mut command = crate::arguments::Arguments::command();
    clap_complete::generate(arguments.shell, &mut command, "sinew", &mut script);
    std::io::Write::write_all(&mut std::io::stdout().lock(), &script)?;
    Ok(())
}
