// SPDX-License-Identifier: Apache-2.0
//! The binary `sinew`: parses the command line and dispatches.
//!
//! Data goes to stdout, progress and messages to stderr; errors say what,
//! why and what to do next, and end with the exit codes of `exit.rs`. Only
//! `up`, `dev` and `doctor` touch this machine; every other command is a client of
//! a node's HTTP API.

mod address;
mod arguments;
mod bytecode;
mod calendar;
mod client;
mod commands;
mod deployment;
mod directory;
mod exit;
mod expression;
mod function_api;
mod function_request;
mod home;
mod imports;
mod java;
mod manifest;
mod node_api;
mod output;
mod progress;
mod python;
mod quantity;
mod requirements;
mod search_tree;
mod shards;
mod upkeep;
mod upload;
mod usage;

use std::process::ExitCode;

use anyhow::Context as _;
use clap::Parser;

use address::Found;
use arguments::{Arguments, Command, Format, Global};
use exit::{Code, Stop};
use node_api::Node;
use output::Output;

#[global_allocator]
static HEAP: node::Heap = node::HEAP;

fn main() -> ExitCode {
    let Arguments { global, command } = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => return arguments::refused(&error),
    };
    let output = Output::new(&global);
    match dispatch(&global, command, &output) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if !exit::is_silent(&error) {
                output.error(&error);
            }
            ExitCode::from(exit::code(&error))
        }
    }
}

fn dispatch(global: &Global, command: Command, output: &Output) -> anyhow::Result<()> {
    match command {
        Command::Up(arguments) => return commands::up::run(&arguments, global, output),
        Command::Dev(arguments) => return commands::dev::run(&arguments, global, output),
        Command::Doctor(arguments) => return commands::doctor::run(&arguments, output),
        Command::New(arguments) => return commands::new::run(&arguments, output),
        Command::Sdk(arguments) => return commands::sdk::run(&arguments, output),
        Command::Upgrade(arguments) => return commands::upgrade::run(&arguments, output),
        Command::Oci(arguments) => return commands::oci::run(&arguments, output),
        Command::SandboxInit => return commands::sandbox_init::run(),
        Command::Verify(arguments) => return commands::verify::run(&arguments, output),
        Command::Version => return commands::version::run(output),
        Command::Completion(arguments) => return commands::completion::run(&arguments),
        _ => {}
    }
    if global.verbose > 0 {
        output::log_to_stderr(global.verbose, Format::Human)?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("the event loop does not start")?;
    let done = runtime.block_on(async {
        let address = match address::of(global)? {
            Found::Named(address) => address,
            Found::OfDev(address, folder) => {
                if !output.is_json() {
                    output.say(&format!("(asking the node of `sinew dev` in {})", folder.display()));
                }
                address
            }
        };
        let mut node = Node::new(address);
        tokio::select! {
            done = client_command(command, &mut node, output) => done,
            _ = tokio::signal::ctrl_c() => Err(interrupted()),
        }
    });
    // A read of stdin may still be waiting; nobody needs it.
    runtime.shutdown_background();
    done
}

/// Leaving closes the connection, and the node cancels what it did for us.
fn interrupted() -> anyhow::Error {
    Stop::new(Code::Interrupted, "interrupted; the node gives up what nobody else waits for").into()
}

async fn client_command(command: Command, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    match command {
        Command::Deploy(arguments) => commands::deploy::run(&arguments, node, output).await,
        Command::Invoke(arguments) => commands::invoke::run(&arguments, node, output).await,
        Command::List => commands::list::run(node, output).await,
        Command::Describe(arguments) => commands::describe::run(&arguments, node, output).await,
        Command::Logs(arguments) => commands::logs::run(&arguments, node, output).await,
        Command::Rollback(arguments) => commands::rollback::run(&arguments, node, output).await,
        Command::Alias(arguments) => commands::alias::run(&arguments, node, output).await,
        Command::Dlq(arguments) => commands::dlq::run(&arguments, node, output).await,
        Command::Workflow(arguments) => commands::workflow::run(&arguments, node, output).await,
        Command::Mcp(arguments) => commands::mcp::run(&arguments, node, output).await,
        Command::Key(arguments) => commands::key::run(&arguments, node, output).await,
        Command::Secret(arguments) => commands::secret::run(&arguments, node, output).await,
        Command::Delete(arguments) => commands::delete::run(&arguments, node, output).await,
        Command::Put(arguments) => commands::put::run(&arguments, node, output).await,
        Command::Get(arguments) => commands::get::run(&arguments, node, output).await,
        Command::Ls(arguments) => commands::ls::run(&arguments, node, output).await,
        Command::Cat(arguments) => commands::cat::run(&arguments, node, output).await,
        Command::Eval(arguments) => commands::eval::run(&arguments, node, output).await,
        Command::Run(arguments) => commands::run::run(&arguments, node, output).await,
        Command::Map(arguments) => commands::map::run(&arguments, node, output).await,
        Command::Label(arguments) => commands::label::run(&arguments, node, output).await,
        Command::Tier(arguments) => commands::tier::run(&arguments, node, output).await,
        Command::Gc(arguments) => commands::gc::run(&arguments, node, output).await,
        Command::Fsck(arguments) => commands::fsck::run(&arguments, node, output).await,
        Command::Backup(arguments) => commands::backup::run(&arguments, node, output).await,
        Command::Restore(arguments) => commands::restore::run(&arguments, node, output).await,
        Command::Explain(arguments) => commands::explain::run(&arguments, node, output).await,
        Command::Audit(arguments) => commands::audit::run(&arguments, node, output).await,
        Command::Identity => commands::identity::run(node, output).await,
        Command::Bench(arguments) => commands::bench::run(&arguments, node, output).await,
        Command::Up(_)
        | Command::Dev(_)
        | Command::Doctor(_)
        | Command::New(_)
        | Command::Sdk(_)
        | Command::Upgrade(_)
        | Command::Oci(_)
        | Command::SandboxInit
        | Command::Verify(_)
        | Command::Version
        | Command::Completion(_) => Ok(()),
    }
}
