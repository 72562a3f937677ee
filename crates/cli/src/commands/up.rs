// SPDX-License-Identifier: Apache-2.0
//! `sinew up`: runs a node until Ctrl-C or SIGTERM, then lets it drain.
//!
//! A flag wins over its `SINEW_*` variable, that over the file, that over
//! the default. Only the default port gives way to a free one.

mod service;
mod telemetry;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use serde_json::json;

use super::version::{COMMIT, VERSION};
use crate::arguments::{Format, Global};
use crate::exit::{Code, Stop};
use crate::home::default_home;
use crate::output::{Output, log_to_stderr};
use crate::quantity::{exact, parse_bytes};

/// Where the HTTP API listens unless told otherwise.
pub(crate) const LISTEN_DEFAULT: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8080));

/// How the node runs.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Where everything is kept [default: $XDG_DATA_HOME/sinew]
    #[arg(long, value_name = "DIR", env = "SINEW_HOME")]
    home: Option<PathBuf>,
    /// Address of the HTTP API, or `off` for the unix socket only [default: 127.0.0.1:8080, or a free port]
    #[arg(long, value_name = "ADDRESS", value_parser = parse_listen, env = "SINEW_LISTEN")]
    listen: Option<Listen>,
    /// Let other machines reach the API without TLS; all requests need keys then
    #[arg(long, conflicts_with_all = ["tls_cert", "tls_self_signed"])]
    insecure_http: bool,
    /// Speak TLS, with this certificate (PEM, with those between it and an authority)
    #[arg(
        long,
        value_name = "FILE",
        env = "SINEW_TLS_CERT",
        requires = "tls_key",
        conflicts_with = "tls_self_signed"
    )]
    tls_cert: Option<PathBuf>,
    /// The certificate's key (PEM)
    #[arg(long, value_name = "FILE", env = "SINEW_TLS_KEY", requires = "tls_cert")]
    tls_key: Option<PathBuf>,
    /// Speak TLS, with a certificate that the node makes for itself and keeps in its home
    #[arg(long)]
    tls_self_signed: bool,
    /// A name or address by which clients call the node, for that certificate; may be repeated
    #[arg(long, value_name = "NAME", requires = "tls_self_signed")]
    tls_name: Vec<String>,
    /// A network of proxies that are believed for whom they ask (X-Forwarded-For), like 10.0.0.0/8; may be repeated
    #[arg(long, value_name = "NETWORK", value_parser = parse_network)]
    trusted_proxy: Vec<String>,
    /// Applications that run at the same time [default: one per processor]
    #[arg(long, value_name = "N", value_parser = parse_workers, env = "SINEW_WORKERS")]
    workers: Option<usize>,
    /// Threads that serve clients [default: one, or half as many as processors if there are eight or more]
    #[arg(long, value_name = "N", value_parser = parse_event_loops, env = "SINEW_EVENT_LOOPS")]
    event_loops: Option<usize>,
    /// Seconds that requests under way have once it is told to stop; told again, it ends at once [default: 25]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(..=86_400), env = "SINEW_DRAIN")]
    drain: Option<u64>,
    /// Memory for objects, relations and sandboxes, like 2GiB [default: half of the machine's]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory, env = "SINEW_MEMORY")]
    memory: Option<u64>,
    /// Disk for logs of requests to functions, like 1GiB; 0 keeps them in memory alone [default: 256MiB]
    #[arg(long, value_name = "SIZE", value_parser = parse_logs, env = "SINEW_LOGS")]
    logs: Option<u64>,
    /// The Python that functions run on [default: python3]
    #[arg(long, value_name = "PROGRAM", env = "SINEW_PYTHON")]
    python: Option<PathBuf>,
    /// The Node.js that functions run on [default: node]
    #[arg(long, value_name = "PROGRAM", env = "SINEW_NODEJS")]
    nodejs: Option<PathBuf>,
    /// A TOML file with the settings that no flag or variable gives
    #[arg(long, value_name = "FILE", env = "SINEW_CONFIG")]
    config: Option<PathBuf>,
    /// How log lines look
    #[arg(long, value_enum, value_name = "FORMAT", default_value_t = Format::Human, env = "SINEW_LOG_FORMAT")]
    log_format: Format,
}

/// What `--listen` may say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Listen {
    Off,
    At(SocketAddr),
}

pub(super) fn parse_listen(text: &str) -> Result<Listen, String> {
    if text == "off" {
        return Ok(Listen::Off);
    }
    let address = text.strip_prefix("localhost:").map_or(text.to_owned(), |port| format!("127.0.0.1:{port}"));
    let address = address.parse().map(Listen::At);
    address.map_err(|_| "an address is written 127.0.0.1:8080, [::1]:8080, or off".to_owned())
}

fn parse_network(text: &str) -> Result<String, String> {
    text.parse().map(|network: node::Network| network.to_string())
}

fn parse_workers(text: &str) -> Result<usize, String> {
    let workers = text.parse().ok().filter(|workers| (1..=node::WORKERS_MAX).contains(workers));
    workers.ok_or_else(|| format!("1 to {} workers", node::WORKERS_MAX))
}

fn parse_event_loops(text: &str) -> Result<usize, String> {
    let loops = text.parse().ok().filter(|loops| (1..=node::EVENT_LOOPS_MAX).contains(loops));
    loops.ok_or_else(|| format!("1 to {} event loops", node::EVENT_LOOPS_MAX))
}

fn parse_memory(text: &str) -> Result<u64, String> {
    let least = node::MEMORY_BYTES_MIN;
    match parse_bytes(text)? {
        bytes if bytes >= least => Ok(bytes),
        _ => Err(format!("a node needs {} or more", exact(least))),
    }
}

fn parse_logs(text: &str) -> Result<u64, String> {
    let least = node::LOGS_BYTES_MIN;
    match parse_bytes(text)? {
        bytes if bytes == 0 || bytes >= least => Ok(bytes),
        _ => Err(format!("logs take {} or more, or 0", exact(least))),
    }
}

pub(crate) fn run(arguments: &Arguments, global: &Global, output: &Output) -> anyhow::Result<()> {
    log_to_stderr(global.verbose, arguments.log_format)?;
    let options = options(arguments, output)?;
    let ran = node::run(&options, |running| {
        if let Err(error) = welcome(running, output) {
            tracing::warn!(%error, "the welcome could not be printed");
        }
        if let Err(error) = service::tell_ready() {
            tracing::warn!(%error, "NOTIFY_SOCKET could not be told that the node is ready");
        }
    });
    ran.map_err(|error| explained(&error, &options))
}

fn options(arguments: &Arguments, output: &Output) -> anyhow::Result<node::Options> {
    let file = arguments.config.as_deref().map(node::Options::from_file).transpose();
    let file = file.map_err(|error| Stop::new(Code::Usage, error.to_string()))?.unwrap_or_default();
    let listen = match arguments.listen {
        Some(Listen::At(address)) => Some(address),
        Some(Listen::Off) => None,
        None => file.listen,
    };
    let told = arguments.listen.is_some() || file.listen.is_some();
    let given = node::Options {
        home: arguments.home.clone(),
        insecure_http: arguments.insecure_http,
        tls_cert: arguments.tls_cert.clone(),
        tls_key: arguments.tls_key.clone(),
        tls_self_signed: arguments.tls_self_signed,
        tls_names: arguments.tls_name.clone(),
        trusted_proxies: arguments.trusted_proxy.clone(),
        workers: arguments.workers,
        event_loops: arguments.event_loops,
        drain_s: arguments.drain,
        logs_bytes: arguments.logs,
        memory_bytes: arguments.memory,
        python: arguments.python.clone(),
        nodejs: arguments.nodejs.clone(),
        traces: telemetry::traces(|name| std::env::var(name).ok())?,
        version: VERSION.to_owned(),
        commit: COMMIT.to_owned(),
        sandbox_init: super::sandbox_init::command(),
        ..node::Options::default()
    };
    let mut options = given.or(file);
    options.listen = if told { listen } else { Some(default_or_free(output)?) };
    if options.home.is_none() {
        let home = default_home().ok_or_else(|| {
            Stop::new(Code::Usage, "there is no home: neither SINEW_HOME nor HOME is set")
                .suggest("sinew up --home DIR")
        })?;
        options.home = Some(home);
    }
    Ok(options)
}

/// The default address, or one with a free port if another program has it.
pub(super) fn default_or_free(output: &Output) -> anyhow::Result<SocketAddr> {
    match TcpListener::bind(LISTEN_DEFAULT) {
        Ok(_) => Ok(LISTEN_DEFAULT),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            output.say(&format!("{LISTEN_DEFAULT} is in use by another program; taking a free port"));
            Ok(SocketAddr::new(LISTEN_DEFAULT.ip(), 0))
        }
        Err(error) => Err(error).with_context(|| format!("cannot listen on {LISTEN_DEFAULT}")),
    }
}

fn welcome(running: &node::Running, output: &Output) -> anyhow::Result<()> {
    let scheme = if running.is_tls { "https" } else { "http" };
    let url = running.address.map(|address| format!("{scheme}://{address}"));
    if output.is_json() {
        output.json(&json!({
            "event": "ready",
            "address": url,
            "certificate": running.own_certificate,
            "socket": running.socket,
            "home": running.home,
            "workers": running.workers,
            "missing": running.missing,
            "pid": std::process::id(),
            "version": VERSION,
        }))?;
        return Ok(());
    }
    let path = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
    let lines = [
        ("API", url.clone()),
        ("trust", path(&running.own_certificate)),
        ("socket", path(&running.socket)),
        ("home", path(&running.home)),
    ];
    output.say(&format!("sinew {VERSION} is ready, with {} workers", running.workers));
    for (what, value) in lines {
        if let Some(value) = value {
            output.say(&format!("  {what:<7} {value}"));
        }
    }
    if !running.missing.is_empty() {
        let missing = running.missing.join(", ");
        output.say(&format!("  missing {missing}: functions run without; `sinew doctor` tells more"));
    }
    // A node in another home than the environment's is found only by name.
    let named = match &running.socket {
        Some(socket) if running.home != default_home() => format!(" --node {}", socket.display()),
        _ => String::new(),
    };
    output.say(&format!("Try, in another terminal:\n  sinew bench{named}\n  echo hello | sinew put{named}"));
    let trusting =
        path(&running.own_certificate).map_or_else(String::new, |file| format!("--cacert {file} "));
    let curl = |url| format!("  curl {trusting}{url}/v1/status");
    output.say(&url.map_or_else(|| "  sinew eval --help".to_owned(), curl));
    Ok(())
}

/// A start that failed, with what to do about it.
pub(super) fn explained(error: &node::Error, options: &node::Options) -> anyhow::Error {
    let stop = Stop::new(Code::Failed, error.to_string());
    let stop = match error {
        node::Error::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
            stop.suggest("sinew up --listen 127.0.0.1:0 takes a free port")
        }
        _ => match &options.home {
            Some(home) => stop.suggest(format!("sinew doctor --home {}", home.display())),
            None => stop.suggest("sinew doctor"),
        },
    };
    stop.into()
}

#[cfg(test)]
mod tests;
