// SPDX-License-Identifier: Apache-2.0
//! `sinew dev`: the functions of a directory, served while they are edited.
//!
//! A node of the directory's own runs within this program (`own_node.rs`), or
//! one that answers is used. What changes (`watch.rs`) is built, uploaded and
//! switched (`session.rs`); what does not load is told, and what served before
//! still does. Requests and what they print are shown as they come
//! (`requests.rs`).

mod debug;
mod own_node;
mod requests;
mod session;
mod watch;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use clap::Args;
use node::Debugging;
use serde_json::json;
use tokio::signal::unix::{SignalKind, signal};

use super::deploy::manifest_at;
use super::up::{Listen, parse_listen};
use crate::address::{self, Address};
use crate::arguments::{Format, Global};
use crate::exit::{Code, Stop};
use crate::home::DEV_HOME;
use crate::node_api::Node;
use crate::output::{Output, log_from, log_to_stderr};
use crate::quantity::human_time;
use own_node::OwnNode;
use session::Session;
use watch::{Changes, Watch};

/// What to run.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sinew dev\n  sinew dev services/a --function hello\n  \
    sinew --node http://127.0.0.1:8080 dev     with a node that runs already\n  \
    sinew dev --debug                          and debug them in an editor")]
pub(crate) struct Arguments {
    /// A directory with a sinew.toml, or such a file [default: .]
    #[arg(value_name = "PATH", default_value = ".", hide_default_value = true)]
    path: PathBuf,
    /// Only this function; may be repeated
    #[arg(short, long = "function", value_name = "NAME")]
    functions: Vec<String>,
    /// Address of the functions [default: 127.0.0.1:8080, or a free port]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen)]
    listen: Option<Listen>,
    /// Let debuggers in: debugpy for Python, the inspector for Node
    #[arg(long)]
    debug: bool,
    /// Where the node keeps its data [default: .sinew beside the manifest]
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
}

pub(crate) fn run(arguments: &Arguments, global: &Global, output: &Output) -> anyhow::Result<()> {
    let begun = Instant::now();
    match global.verbose {
        // What fails is told anyway.
        0 => log_from("error", Format::Human)?,
        more => log_to_stderr(more - 1, Format::Human)?,
    }
    let manifest = manifest_at(&arguments.path)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("the event loop does not start")?;
    let done = runtime.block_on(async {
        let debugging =
            arguments.debug.then(Debugging::new).transpose().context("no thread for debuggers")?;
        let debugging = debugging.map(Arc::new);
        let (address, mut own) = node(arguments, &manifest, debugging.clone(), global, output).await?;
        let mut terminated = signal(SignalKind::terminate())?;
        let done = tokio::select! {
            done = serve(arguments, &manifest, &address, debugging, begun, output) => done,
            _ = tokio::signal::ctrl_c() => Ok(()),
            _ = terminated.recv() => Ok(()),
            () = own_node::ended(&mut own) => Ok(()),
        };
        match own {
            Some(own) => own.stop().and(done),
            None => done,
        }
    });
    runtime.shutdown_background();
    done
}

/// The node that was named, or the one that this directory has already, or a new one.
async fn node(
    arguments: &Arguments,
    manifest: &Path,
    debugging: Option<Arc<Debugging>>,
    global: &Global,
    output: &Output,
) -> anyhow::Result<(Address, Option<OwnNode>)> {
    if let Some(named) = &global.node {
        refuse_debugging(debugging.as_ref(), "leave --node and SINEW_NODE out")?;
        return Ok((address::parse(named)?, None));
    }
    let home = match &arguments.home {
        Some(home) => home.clone(),
        None => folder_of(manifest).join(DEV_HOME),
    };
    let socket = Address::Unix(home.join(node::SOCKET_NAME));
    if Node::new(socket.clone()).functions().await.is_ok() {
        refuse_debugging(debugging.as_ref(), "end the `sinew dev` that runs here, or name another --home")?;
        output.say(&format!("a node runs here already: {socket}"));
        return Ok((socket, None));
    }
    let own = OwnNode::start(&home, arguments.listen, debugging, output).await?;
    Ok((own.address().clone(), Some(own)))
}

/// A node lets debuggers in from its start on, or never.
fn refuse_debugging(debugging: Option<&Arc<Debugging>>, advice: &str) -> anyhow::Result<()> {
    if debugging.is_none() {
        return Ok(());
    }
    let why = "--debug is for a node of this directory's own, and one runs already";
    Err(Stop::new(Code::Usage, why).suggest(advice).into())
}

/// The directory of a manifest.
fn folder_of(manifest: &Path) -> &Path {
    match manifest.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    }
}

/// Deploys, and again whenever something changed.
async fn serve(
    arguments: &Arguments,
    manifest: &Path,
    address: &Address,
    debugging: Option<Arc<Debugging>>,
    begun: Instant,
    output: &Output,
) -> anyhow::Result<()> {
    let mut watch = Watch::new(folder_of(manifest))?;
    let mut seen = requests::Requests::since_now(address.clone()).await?;
    let only = arguments.functions.clone();
    let debugging = debugging.map(|it| debug::Debug::new(it, folder_of(manifest)));
    let mut session = Session::new(manifest.to_owned(), only, address.clone(), debugging, output);
    let reload = async {
        session.begin().await?;
        welcome(&session, begun, output).await?;
        loop {
            let mut next = std::pin::pin!(watch.changes(output));
            let changes = loop {
                tokio::select! {
                    changes = &mut next => break changes?,
                    () = session.secrets_come() => session.reload(&Changes::none()).await?,
                }
            };
            session.reload(&changes).await?;
        }
    };
    tokio::select! {
        done = reload => done,
        done = seen.follow(output) => done,
    }
}

/// What there is now, and how it is called.
async fn welcome(session: &Session<'_>, begun: Instant, output: &Output) -> anyhow::Result<()> {
    let serving = session.serving();
    if output.is_json() {
        let urls: Vec<_> = serving
            .iter()
            .map(|(name, runtime, url)| json!({"name": name, "runtime": runtime, "url": url}))
            .collect();
        let ms = u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX);
        return output.json(&json!({"event": "ready", "functions": urls, "ms": ms}));
    }
    for (name, runtime, url) in &serving {
        output.line(&format!("{name} ({runtime})  {url}"))?;
    }
    output.say(&format!("ready in {}", human_time(begun.elapsed())));
    if let Some((_, _, url)) = serving.first() {
        output.say(&format!("try:  curl -d '{{\"name\": \"Ada\"}}' {url}"));
    }
    output.say("edit, and it reloads; Ctrl-C ends it");
    Ok(())
}
