// SPDX-License-Identifier: Apache-2.0
//! The command line: global flags and the list of commands. Each command's
//! own arguments are in its file under `commands/`.

use std::ffi::OsStr;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand, ValueEnum};

use crate::commands;
use crate::exit::{self, Code, Stop};

/// The whole command line.
#[derive(Debug, Parser)]
#[command(
    name = "sinew",
    version = crate::commands::version::VERSION,
    about = "Functions in any language on your own machines, which hand each other memory instead of messages",
    after_help = "Begin with:\n  sinew new hello -l python && cd hello && sinew dev    a function, served while it is edited\n  \
                  sinew up                                              a node; then, in another terminal:\n  \
                  sinew deploy && sinew invoke hello -d '{\"name\": \"Ada\"}'\n\n\
                  Exit codes: 0 ok, 1 failed, 2 usage, 3 the result is a failure, 4 not found, 5 deadline,\n\
                  6 unauthorised, 7 no node, 8 something stored is damaged, 130 interrupted.",
    disable_help_subcommand = true
)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Flags of every command.
#[derive(Debug, Clone, Args)]
pub(crate) struct Global {
    /// How to print results and errors
    #[arg(short, long, global = true, value_enum, default_value_t = Format::Human, env = "SINEW_OUTPUT")]
    pub(crate) output: Format,
    /// The node: http://HOST:PORT, https://HOST:PORT, or the path of its socket [default: $SINEW_HOME/node.sock]
    #[arg(long, global = true, value_name = "URL|PATH", env = "SINEW_NODE")]
    pub(crate) node: Option<String>,
    /// Say more on stderr; twice for everything
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// No colours, also if NO_COLOR is set
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
}

/// For whom to print.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    /// For people
    Human,
    /// For programs: one JSON document a line
    Json,
}

/// One command, one file.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run a node until Ctrl-C
    Up(commands::up::Arguments),
    /// Write a new function into a directory
    New(commands::new::Arguments),
    /// Write what tests and scripts have as `sinew`, what native functions are compiled with, or the manifest's schema
    Sdk(commands::sdk::Arguments),
    /// Run the functions of sinew.toml here, and reload them as their files change
    Dev(commands::dev::Arguments),
    /// Build, upload and switch the functions of sinew.toml
    Deploy(commands::deploy::Arguments),
    /// Send a function a request; print its answer
    Invoke(commands::invoke::Arguments),
    /// List the functions
    List,
    /// Show a function: settings, versions, numbers
    Describe(commands::describe::Arguments),
    /// Show the last requests to functions, and what they printed
    Logs(commands::logs::Arguments),
    /// Let an earlier version of a function serve again
    Rollback(commands::rollback::Arguments),
    /// List, set or remove aliases of a function: names for versions, shared by percent
    Alias(commands::alias::Arguments),
    /// Set, list and remove secrets, which functions get as variables
    Secret(commands::secret::Arguments),
    /// List, show, redrive and purge dead letters: calls that nobody tries any more
    Dlq(commands::dlq::Arguments),
    /// Run workflows, and look at their runs
    Workflow(commands::workflow::Arguments),
    /// Be an agent's server of tools, which are functions (Model Context Protocol)
    Mcp(commands::mcp::Arguments),
    /// Make, list and revoke keys of the API
    Key(commands::key::Arguments),
    /// Remove a function
    Delete(commands::delete::Arguments),
    /// Store files or stdin; print handles
    Put(commands::put::Arguments),
    /// Write an object's bytes, or a tree's entries, to stdout or a file
    Get(commands::get::Arguments),
    /// List a tree's entries, or what is stored
    Ls(commands::ls::Arguments),
    /// Print a blob; tell a failure
    Cat(commands::cat::Arguments),
    /// Evaluate an expression; print the result
    Eval(commands::eval::Arguments),
    /// Run a whole program (WASI), as if it were one of this machine's
    Run(commands::run::Arguments),
    /// Run a whole program (WASI) for each of many files; only what changed is run again
    Map(commands::map::Arguments),
    /// List, read, set or delete labels
    Label(commands::label::Arguments),
    /// Tell where a handle comes from and what its evaluation took
    Explain(commands::explain::Arguments),
    /// Check a receipt's signature, and tell what it says; asks no node
    Verify(commands::verify::Arguments),
    /// Run again what a receipt is about, and compare results and costs
    Audit(commands::audit::Arguments),
    /// Print the public key that the node signs receipts with
    Identity,
    /// Take away what nobody needs: no label names it, and it is old
    Gc(commands::gc::Arguments),
    /// Tell how the durable tier fares, wait for it, or take one over
    Tier(commands::tier::Arguments),
    /// Check all that is stored, and put right what can be
    Fsck(commands::fsck::Arguments),
    /// Keep points in time of a home in a folder elsewhere
    Backup(commands::backup::Arguments),
    /// Make a home of a point in time, or put labels of one back
    Restore(commands::restore::Arguments),
    /// Bring a home that an older version wrote up to date
    Upgrade(commands::upgrade::Arguments),
    /// Check whether this machine can run a node, and what is missing
    Doctor(commands::doctor::Arguments),
    /// Measure the node, or load a function
    Bench(commands::bench::Arguments),
    /// Run OCI bundles: create, start, state, kill, delete
    Oci(commands::oci::Arguments),
    /// Be a container's init; the node starts it
    #[command(hide = true)]
    SandboxInit,
    /// Print versions
    Version,
    /// Print a completion script for a shell
    Completion(commands::completion::Arguments),
}

/// Ends with what is wrong with the command line, for people or for programs;
/// `--help` and `--version` come this way too.
pub(crate) fn refused(error: &clap::Error) -> ExitCode {
    let variable = std::env::var_os("SINEW_OUTPUT");
    if !error.use_stderr() || !wants_json(std::env::args_os().skip(1), variable.as_deref()) {
        error.exit();
    }
    let told = error.render().to_string();
    // Behind the first paragraph come usage and hints.
    let (what, hints) = told.trim().split_once("\n\n").unwrap_or((told.trim(), ""));
    let what = what.strip_prefix("error: ").unwrap_or(what);
    let advice = hints.lines().map(str::trim).find_map(|line| line.strip_prefix("tip: "));
    let stop = Stop::new(Code::Usage, what).suggest(advice.unwrap_or("sinew --help"));
    eprintln!("{}", exit::json(&stop.into()));
    ExitCode::from(Code::Usage as u8)
}

/// Whether a command line that cannot be parsed asks for JSON.
fn wants_json<T: AsRef<OsStr>>(arguments: impl Iterator<Item = T>, variable: Option<&OsStr>) -> bool {
    let mut said = None;
    let mut is_value = false;
    for argument in arguments {
        let Some(text) = argument.as_ref().to_str() else { continue };
        let value = if is_value {
            Some(text)
        } else {
            ["--output=", "-o=", "-o"]
                .iter()
                .find_map(|flag| text.strip_prefix(flag))
                .filter(|value| !value.is_empty())
        };
        is_value = matches!(text, "-o" | "--output");
        said = value.map(|value| value == "json").or(said);
    }
    said.unwrap_or_else(|| variable.is_some_and(|variable| variable == "json"))
}

#[cfg(test)]
mod tests;
