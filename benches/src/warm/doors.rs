// SPDX-License-Identifier: Apache-2.0
//! What stands beside a gateway: a server in C that does nothing but read and
//! write, which no server of HTTP can be below, and nginx between the clients and
//! plain Node, which is what people have without a platform.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, ensure};

use super::servers::{ANSWER, PEERS, Server, free_address};

/// Connections that nginx keeps to Node, for each of its processes.
const KEPT: usize = 64;

/// The server in C, compiled.
#[expect(clippy::disallowed_methods, reason = "a compiler and a peer")]
pub(super) fn bare_http(folder: &Path) -> anyhow::Result<Server> {
    let program = folder.join("bare_http");
    let mut compile = Command::new("cc");
    compile.args(["-O2", "-o"]).arg(&program).arg(format!("{PEERS}/bare_http.c"));
    let told = compile.output().context("cc cannot be run; apt-get install gcc")?;
    ensure!(told.status.success(), "{}", String::from_utf8_lossy(&told.stderr));
    let address = free_address()?;
    let mut command = Command::new(program);
    command.arg(address.port().to_string()).arg(ANSWER);
    Server::start(&mut command, address, &folder.join("bare_http.log"))
}

/// nginx, with a process for each processor, kept connections on both sides, and no log of requests.
#[expect(clippy::disallowed_methods, reason = "a peer")]
pub(super) fn nginx(folder: &Path, node: SocketAddr, processors: usize) -> anyhow::Result<Server> {
    let address = free_address()?;
    let root = folder.join("nginx");
    std::fs::create_dir_all(&root)?;
    let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map(|of| format!("  {of}_temp_path {}/{of};\n", root.display()))
        .concat();
    let settings = format!(
        "daemon off;\nworker_processes {processors};\npid {root}/pid;\nerror_log stderr warn;\n\
         events {{ worker_connections 4096; }}\n\
         http {{\n  access_log off;\n  keepalive_requests 1000000000;\n{temporary}\
         \x20 upstream node {{ server {node}; keepalive {KEPT}; keepalive_requests 1000000000; }}\n\
         \x20 server {{\n    listen {address};\n    location / {{\n      proxy_pass http://node;\n\
         \x20     proxy_http_version 1.1;\n      proxy_set_header Connection \"\";\n    }}\n  }}\n}}\n",
        root = root.display(),
    );
    let file = root.join("nginx.conf");
    std::fs::write(&file, settings)?;
    let mut command = Command::new("nginx");
    command.arg("-p").arg(&root).arg("-c").arg(&file);
    Server::start(&mut command, address, &folder.join("nginx.log"))
        .context("nginx does not serve; apt-get install nginx-light")
}
