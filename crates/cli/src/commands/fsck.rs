// SPDX-License-Identifier: Apache-2.0
//! `sinew fsck`: checks all that a home holds, and puts right what can be.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use serde_json::{Value, json};

use crate::address::Address;
use crate::exit::{Code, Stop};
use crate::home::default_home;
use crate::node_api::Node;
use crate::output::Output;
use crate::quantity::{grouped, human_bytes, parse_bytes};
use crate::upkeep::Job;

/// Things that are told to people one by one.
const TOLD_MAX: u64 = 200;

/// What to check.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sinew fsck                       has the node check all that it stores, while it works\n  \
    sinew fsck --speed 50MiB         the same, reading no more than that in a second\n  \
    sinew fsck --home DIR            checks a home that no node uses; nothing in it is changed\n  \
    sinew fsck --repair              puts right what can be; the node must not run\n  \
    sinew fsck --repair --from DIR   and takes what is lost from a backup\n\n\
    Every object is read and hashed. Repairing moves damaged bytes to the folder quarantine, finds what the\n\
    index lost in the packs, drops remembered results that lead to nothing, and says what is lost and which\n\
    labels are hurt. Exit code 8: something is damaged, or was and is lost."
)]
pub(crate) struct Arguments {
    /// A home that no node uses; without it the running node's, or the usual one if none runs
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// Put right what can be
    #[arg(long)]
    repair: bool,
    /// A backup that has what is lost
    #[arg(long, value_name = "BACKUP", requires = "repair")]
    from: Option<PathBuf>,
    /// Read no more than this in a second, like 100MiB
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    speed: Option<u64>,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let job = begin(arguments, node).await?;
    let what = if arguments.repair { "checking and repairing" } else { "checking" };
    report(job, what, arguments.repair, "sinew fsck --repair --from BACKUP, while no node runs", output).await
}

/// With the node if there is one and nothing is to be changed.
async fn begin(arguments: &Arguments, node: &mut Node) -> anyhow::Result<Job> {
    let is_named = arguments.home.is_none() && !is_of_home(node);
    if is_named && arguments.repair {
        let why = "a node does not repair itself: stop it, and name its home with --home";
        return Err(Stop::new(Code::Usage, why).into());
    }
    if arguments.home.is_none() && !arguments.repair {
        let wish = json!({"bytes_per_second": arguments.speed});
        match Job::remote(node, "/v1/check", &wish).await {
            // Whoever names a node wants that one checked, and no other home.
            Err(error)
                if !is_named
                    && is_not_running(&error)
                    && default_home().is_some_and(|home| home.exists()) => {}
            other => return other,
        }
    }
    let home = arguments.home.clone().or_else(default_home);
    let home = home.context("there is no home folder; name one with --home")?;
    let check = node::Fsck {
        repair: arguments.repair,
        from: arguments.from.clone(),
        bytes_per_second: arguments.speed,
    };
    Ok(Job::local(move |teller| {
        let mut progress = |done, all| teller.progress(done, Some(all));
        let mut found = |finding| teller.found(&finding);
        let mut watch = node::Watch { progress: &mut progress, found: &mut found };
        Ok(node::told::checked(&node::fsck(&home, &check, &mut watch)?))
    }))
}

/// Whether the node is the one of the home that is usual here.
fn is_of_home(node: &Node) -> bool {
    let usual = default_home().map(|home| Address::Unix(home.join("node.sock")));
    usual.is_some_and(|usual| node.address() == usual)
}

fn is_not_running(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Stop>().is_some_and(|stop| stop.code == Code::NotRunning)
}

/// Prints what is found and what came of it. Damage is an error: exit code 8.
pub(super) async fn report(
    job: Job,
    what: &str,
    repairs: bool,
    advice: &str,
    output: &Output,
) -> anyhow::Result<()> {
    let mut told = 0;
    let checked = job
        .follow(what, output, |finding, progress| {
            if output.is_json() {
                return output.json(finding);
            }
            let text = |field: &str| finding[field].as_str().unwrap_or_default();
            if text("harm") == "none" {
                return Ok(());
            }
            told += 1;
            if told > TOLD_MAX {
                return Ok(());
            }
            progress.aside();
            output.line(&format!("{} {}: {}", text("kind"), text("place"), text("what")))
        })
        .await?;
    let number = |field: &str| checked[field].as_u64().unwrap_or_default();
    if output.is_json() {
        output.json(&checked)?;
    } else {
        if told > TOLD_MAX {
            output.line(&format!("and {} more; -o json has all", grouped(told - TOLD_MAX)))?;
        }
        output.line(&summary(&checked, repairs))?;
    }
    let left =
        if repairs { number("lost") + number("hurt_labels") } else { number("slight") + number("losses") };
    if left == 0 && !checked["cut"].as_bool().unwrap_or_default() {
        return Ok(());
    }
    let message = match repairs {
        true => format!(
            "{} objects are lost, and {} labels are hurt",
            grouped(number("lost")),
            grouped(number("hurt_labels"))
        ),
        false => format!(
            "damage: {} things are lost, {} can be mended without loss, {} labels are hurt",
            grouped(number("losses")),
            grouped(number("slight")),
            grouped(number("hurt_labels"))
        ),
    };
    Err(Stop::new(Code::Damaged, message).suggest(advice).into())
}

fn summary(checked: &Value, repairs: bool) -> String {
    let number = |field: &str| checked[field].as_u64().unwrap_or_default();
    let mut lines = vec![format!(
        "{} objects are sound, {}; {} labels, {} remembered results",
        grouped(number("objects")),
        human_bytes(number("bytes")),
        grouped(number("labels")),
        grouped(number("relations")),
    )];
    if repairs {
        lines.push(format!(
            "{} objects were put back, {} things mended",
            grouped(number("restored")),
            grouped(number("mended"))
        ));
    }
    for (files, bytes, what) in [
        ("temporary", "temporary_bytes", "unfinished files are in tmp: the node removes them when it starts"),
        ("quarantined", "quarantined_bytes", "damaged files are in quarantine, for people to look at"),
    ] {
        if number(files) > 0 {
            lines.push(format!("{} {what} ({})", grouped(number(files)), human_bytes(number(bytes))));
        }
    }
    lines.join("\n")
}
