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
    // What is hidden from people is hidden from their shells.
    let whole = crate::arguments::Arguments::command();
    let mut command = clap::Command::new("sinew")
        .args(whole.get_arguments().cloned())
        .subcommands(whole.get_subcommands().filter(|command| !command.is_hide_set()).cloned());
    clap_complete::generate(arguments.shell, &mut command, "sinew", &mut script);
    std::io::Write::write_all(&mut std::io::stdout().lock(), &script)?;
    Ok(())
}
