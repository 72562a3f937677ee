// SPDX-License-Identifier: Apache-2.0
//! `sinew secret`: names with values that functions get. A value is read from
//! stdin or asked for, and stands in no argument, where others could read it.

use std::io::{IsTerminal as _, Read as _};

use clap::{Args, Subcommand};
use serde_json::json;

use crate::exit::{Code, Stop};
use crate::node_api::Node;
use crate::output::Output;

const VALUE_BYTES_MAX: u64 = 64 << 10;

/// What about secrets.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sinew secret set DB_URL              asks for the value\n  \
    sinew secret set DB_URL < url.txt\n  sinew secret list\n  sinew secret rm DB_URL\n\n\
    A function names the secrets that it needs in sinew.toml, secrets = [\"DB_URL\"], and finds\n\
    each in its environment.")]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Set one; the value comes from stdin, less one line's end, or is asked for
    Set {
        /// Its name, which is the variable's too
        name: String,
    },
    /// List the names, and which functions need each
    List,
    /// Remove one that no function needs
    Rm {
        /// Its name
        name: String,
    },
}

/// Whether the node keeps it to itself: what signs callbacks, and keys of buckets.
fn is_nodes_own(name: &str) -> bool {
    name == "SINEW_CALLBACKS" || name.starts_with("SINEW_S3")
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    match &arguments.action {
        Action::Set { name } => {
            checked(name)?;
            let is_changed = node.set_secret(name, value(name)?).await?;
            if output.is_json() {
                return output.json(&json!({ "name": name, "changed": is_changed }));
            }
            let what = match is_changed {
                true if is_nodes_own(name) => "set; the node uses it from now on, and no function gets it",
                true => "set; functions get it with their next instance",
                false => "unchanged",
            };
            output.line(&format!("{name}  {what}"))
        }
        Action::Rm { name } => {
            node.remove_secret(checked(name)?).await?;
            output.line(&format!("{name}  removed"))
        }
        Action::List => list(node, output).await,
    }
}

async fn list(node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let secrets = node.secrets().await?;
    if output.is_json() {
        return secrets.iter().try_for_each(|secret| output.json(secret));
    }
    if secrets.is_empty() && output.is_watched() {
        output.say("there are no secrets; `sinew secret set NAME` makes one");
        return Ok(());
    }
    let row = |secret: &serde_json::Value| {
        let users = secret["used_by"].as_array().into_iter().flatten().filter_map(|user| user.as_str());
        let users = users.collect::<Vec<_>>().join(", ");
        vec![secret["name"].as_str().unwrap_or("-").to_owned(), users]
    };
    let rows: Vec<_> = secrets.iter().map(row).collect();
    output.table(&["NAME", "USED BY"], &[], &rows)
}

/// A name that may stand in a URL as it is.
fn checked(name: &str) -> Result<&str, Stop> {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if (1..=64).contains(&name.len()) && name.bytes().all(plain) && !name.as_bytes()[0].is_ascii_digit() {
        return Ok(name);
    }
    let stop = Stop::new(Code::Usage, format!("{name:?} cannot be a secret's name"));
    Err(stop.suggest("names are those of variables: A-Z, a-z, 0-9 and _, without a digit first"))
}

fn value(name: &str) -> anyhow::Result<String> {
    if std::io::stdin().is_terminal() {
        return Ok(rpassword::prompt_password(format!("{name}: "))?);
    }
    let mut value = String::new();
    std::io::stdin().take(VALUE_BYTES_MAX + 2).read_to_string(&mut value)?;
    if value.ends_with('\n') {
        value.pop();
    }
    if value.len() as u64 > VALUE_BYTES_MAX {
        return Err(Stop::new(Code::Usage, format!("a secret has at most {VALUE_BYTES_MAX} bytes")).into());
    }
    Ok(value)
}
