// SPDX-License-Identifier: Apache-2.0
//! `sinew alias`: names for versions of a function, shared by percent.

use clap::Args;
use serde_json::{Value, json};

use crate::exit::{Code, Stop};
use crate::node_api::Node;
use crate::output::Output;

const PERCENT: u32 = 100;

/// Which alias, and what it shall stand for.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  sinew alias hello                    list them\n  \
    sinew alias hello stable 7           stable stands for version 7\n  \
    sinew alias hello live 7@90 8@10     one request of ten goes to version 8\n  \
    sinew alias hello live 7 8@10        the same\n  \
    sinew alias hello stable --remove\n\n\
    The alias live is what serves under the function's own name; others answer at\n\
    /function/NAME:ALIAS. A version answers at /function/NAME:NUMBER.")]
pub(crate) struct Arguments {
    /// The function
    name: String,
    /// The alias
    alias: Option<String>,
    /// Versions, with their percent of requests; one may be left without, and gets the rest
    #[arg(value_name = "VERSION[@PERCENT]", requires = "alias")]
    versions: Vec<String>,
    /// Remove the alias
    #[arg(long, requires = "alias", conflicts_with = "versions")]
    remove: bool,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let name = &arguments.name;
    match &arguments.alias {
        Some(alias) if arguments.remove => {
            node.remove_alias(name, alias).await?;
            output.line(&format!("{name}:{alias}  removed"))
        }
        Some(alias) if !arguments.versions.is_empty() => {
            let shares = shares(&arguments.versions)?;
            let answer = node.set_alias(name, alias, &shares).await?;
            if output.is_json() {
                return output.json(&answer);
            }
            output.line(&format!("{name}:{alias}  {}", told(&answer["versions"])))
        }
        wanted => list(name, wanted.as_deref(), node, output).await,
    }
}

async fn list(name: &str, wanted: Option<&str>, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let function = node.function(name).await?;
    let aliases = function["aliases"].as_object().into_iter().flatten();
    let found: Vec<_> = aliases.filter(|(alias, _)| wanted.is_none_or(|wanted| wanted == *alias)).collect();
    if let Some(wanted) = wanted.filter(|_| found.is_empty()) {
        let stop = Stop::new(Code::NotFound, format!("{name} has no alias {wanted:?}"));
        return Err(stop.suggest(format!("`sinew alias {name} {wanted} VERSION` makes it")).into());
    }
    for (alias, versions) in found {
        if output.is_json() {
            output.json(&json!({ "name": name, "alias": alias, "versions": versions }))?;
        } else {
            output.line(&format!("{name}:{alias}  {}", told(versions)))?;
        }
    }
    Ok(())
}

/// `8@10 7@90`, as it is written.
pub(crate) fn told(versions: &Value) -> String {
    let shares: Vec<String> = versions
        .as_array()
        .into_iter()
        .flatten()
        .map(|share| match share["percent"].as_u64() {
            Some(100) | None => share["version"].to_string(),
            Some(percent) => format!("{}@{percent}", share["version"]),
        })
        .collect();
    shares.join(" ")
}

/// Versions and percent, as the user wrote them.
fn shares(texts: &[String]) -> Result<Vec<(u64, u32)>, Stop> {
    let bad = |text: &str| {
        Stop::new(Code::Usage, format!("{text:?} is no share of requests"))
            .suggest("write a version and its percent: 7@90 8@10")
    };
    let mut shares: Vec<(u64, Option<u32>)> = Vec::new();
    for text in texts {
        // Commas between them are easily written.
        let text = text.trim_end_matches(',');
        let (version, percent) = text.split_once('@').map_or((text, None), |(version, percent)| {
            (version, Some(percent.strip_suffix('%').unwrap_or(percent)))
        });
        let percent = percent.map(str::parse).transpose().map_err(|_| bad(text))?;
        let version = version.strip_prefix('v').unwrap_or(version).parse().map_err(|_| bad(text))?;
        shares.push((version, percent));
    }
    let said: u64 = shares.iter().filter_map(|(_, percent)| percent.map(u64::from)).sum();
    let open = shares.iter().filter(|(_, percent)| percent.is_none()).count();
    let rest = u32::try_from(said).ok().and_then(|said| PERCENT.checked_sub(said));
    match rest {
        Some(rest) if (open == 0 && rest == 0) || (open == 1 && rest > 0) => {
            Ok(shares.into_iter().map(|(version, percent)| (version, percent.unwrap_or(rest))).collect())
        }
        _ => {
            let stop =
                Stop::new(Code::Usage, format!("the shares are {said} percent of the requests, not 100"));
            Err(stop.suggest("one version may be left without a percent: it gets the rest"))
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn read(text: &str) -> Result<Vec<(u64, u32)>, Stop> {
        shares(&text.split(' ').map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn shares_are_written_in_several_ways() {
        for text in ["7@90 8@10", "7 8@10", "7@90%, 8", "v7@90 v8@10%"] {
            assert_eq!(read(text).unwrap(), [(7, 90), (8, 10)], "{text}");
        }
        assert_eq!(read("7").unwrap(), [(7, 100)]);
        assert_eq!(told(&json!([{"version": 8, "percent": 10}, {"version": 7, "percent": 90}])), "8@10 7@90");
        assert_eq!(told(&json!([{"version": 8, "percent": 100}])), "8");
    }

    #[test]
    fn what_is_no_share_is_told() {
        for (text, why) in [
            ("seven", "seven"),
            ("7@x", "7@x"),
            ("7 8", "0 percent"),
            ("7@50 8@40", "90 percent"),
            ("7@100 8", "100 percent"),
            ("7@4294967295 8@1", "4294967296 percent"),
        ] {
            let said = read(text).unwrap_err().message;
            assert!(said.contains(why), "{text}: {said}");
        }
    }
}
