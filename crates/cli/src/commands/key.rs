// SPDX-License-Identifier: Apache-2.0
//! `sinew key`: who may use the node's API. A key is printed once, when it is
//! made, on stdout; the node keeps a hash of it.

use bytes::Bytes;
use clap::{Args, Subcommand, ValueEnum};
use hyper::Request;
use hyper::header::CONTENT_TYPE;
use serde_json::{Value, json};

use crate::client::whole;
use crate::exit::{Code, Stop};
use crate::node_api::{JSON, Node};
use crate::output::Output;
use crate::quantity::{exact, human_bytes, parse_bytes};

/// What about keys.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sinew key create --scope invoke --tenant shop --memory 2GiB --cpu 1.5 --requests-per-second 50\n  \
    SINEW_KEY=$(sinew key create --scope deploy) sinew --node http://… deploy\n  sinew key list\n  sinew key revoke ID\n\n\
    A key is sent as Authorization: Bearer KEY, or X-Api-Key: KEY. The node's socket needs none."
)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum Scope {
    /// To call functions
    Invoke,
    /// To deploy them too, and to read and write all that is not secret
    Deploy,
    /// Secrets and keys as well
    Admin,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Make one, and print it
    Create {
        /// What it is good for
        #[arg(long, value_enum)]
        scope: Scope,
        /// Whose requests are counted together
        #[arg(long, default_value = "default")]
        tenant: String,
        /// Requests of the tenant in a second; 0: no limit
        #[arg(long, value_name = "N", default_value_t = 0)]
        requests_per_second: u32,
        /// Requests of the tenant at one time; 0: no limit
        #[arg(long, value_name = "N", default_value_t = 0)]
        concurrency: u32,
        /// Memory of the instances that serve the tenant: 512MiB, 2GiB; 0: no limit
        #[arg(long, value_name = "SIZE", value_parser = parse_bytes, default_value = "0")]
        memory: u64,
        /// Processors that the tenant may use in the long run: 1.5; 0: no limit
        #[arg(long, value_name = "N", default_value_t = 0.0)]
        cpu: f64,
    },
    /// List them, without their texts
    List,
    /// End one
    Revoke {
        /// Its id, which is what stands between the first two `_` of it
        id: String,
    },
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    match &arguments.action {
        Action::Create { scope, tenant, requests_per_second, concurrency, memory, cpu } => {
            let scope = match scope {
                Scope::Invoke => "invoke",
                Scope::Deploy => "deploy",
                Scope::Admin => "admin",
            };
            let wish = json!({
                "scope": scope, "tenant": tenant, "requests_per_second": requests_per_second, "concurrency": concurrency,
                "memory_bytes": memory, "cpu": cpu,
            });
            let request = Request::post("/v1/keys").header(CONTENT_TYPE, JSON);
            let key = node.json(request, whole(wish.to_string())).await?;
            if output.is_json() {
                return output.json(&key);
            }
            output.say("this is the only time that the key is told");
            output.line(key["key"].as_str().unwrap_or_default())
        }
        Action::List => list(node, output).await,
        Action::Revoke { id } => {
            if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_hexdigit()) {
                let stop = Stop::new(Code::Usage, format!("{id:?} is no key's id"));
                return Err(stop.suggest("`sinew key list` has them").into());
            }
            node.send(Request::delete(format!("/v1/keys/{id}")), whole(Bytes::new())).await?;
            if output.is_json() {
                return output.json(&json!({ "id": id, "revoked": true }));
            }
            output.line(&format!("{id}  revoked"))
        }
    }
}

async fn list(node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let mut answer = node.json(Request::get("/v1/keys"), whole(Bytes::new())).await?;
    let Value::Array(keys) = answer["keys"].take() else { anyhow::bail!("the node's answer has no keys") };
    if output.is_json() {
        return keys.iter().try_for_each(|key| output.json(key));
    }
    if keys.is_empty() && output.is_watched() {
        output.say("there are no keys; `sinew key create` makes one");
        return Ok(());
    }
    let rows: Vec<_> = keys.iter().map(row).collect();
    let header = ["ID", "TENANT", "SCOPE", "PER SECOND", "AT A TIME", "MEMORY", "CPU", "IN USE"];
    output.table(&header, &[3, 4, 5, 6], &rows)
}

/// A key's line: what its tenant may use, and uses now.
fn row(key: &Value) -> Vec<String> {
    let text = |name: &str| key[name].as_str().unwrap_or("-").to_owned();
    let limit = |name: &str, write: fn(u64) -> String| {
        key[name].as_u64().filter(|limit| *limit > 0).map_or("-".to_owned(), write)
    };
    let number = |name: &str| limit(name, |limit| limit.to_string());
    let cpu = key["cpu"].as_f64().filter(|cpu| *cpu > 0.0).map_or("-".to_owned(), |cpu| cpu.to_string());
    let in_use = &key["in_use"];
    let used = match (in_use["requests"].as_u64(), in_use["memory_bytes"].as_u64()) {
        (Some(requests), Some(memory)) if memory > 0 => {
            format!("{requests} under way, {}", human_bytes(memory))
        }
        (Some(requests), _) if requests > 0 => format!("{requests} under way"),
        _ => "-".to_owned(),
    };
    vec![
        text("id"),
        text("tenant"),
        text("scope"),
        number("requests_per_second"),
        number("concurrency"),
        limit("memory_bytes", exact),
        cpu,
        used,
    ]
}
