// SPDX-License-Identifier: Apache-2.0
//! `sinew backup`: points in time of a home, in a folder elsewhere.

use std::path::{Path, PathBuf};

use clap::Args;
use serde_json::{Value, json};

use super::fsck;
use crate::calendar;
use crate::exit::{Code, Stop};
use crate::node_api::Node;
use crate::output::Output;
use crate::quantity::{grouped, human_bytes};
use crate::upkeep::{Job, absolute};

/// Where, and what to do there.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sinew backup /mnt/b              writes what the node has now, as far as it is not there yet\n  \
    sinew backup /mnt/b --list       tells which points in time are there\n  \
    sinew backup /mnt/b --verify     reads and hashes all of it\n  \
    sinew backup /mnt/b --keep 7     forgets all points but the last seven\n\n\
    In a point are all labels with all that they name (functions, their versions and code are such), the API's\n\
    keys, and secrets as they are sealed. Not in it: the key that opens them (secrets.key; keep it elsewhere),\n\
    calls that wait, remembered results, what no label names. A point that was broken off is none."
)]
pub(crate) struct Arguments {
    /// A folder of the node's machine: empty, not there yet, or a backup
    #[arg(value_name = "DIR")]
    to: PathBuf,
    /// What the point is to be called [default: the time, like 20261123T140500Z]
    #[arg(long, value_name = "POINT")]
    name: Option<String>,
    /// A home that no node uses
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,
    /// List points
    #[arg(long, conflicts_with_all = ["name", "home", "verify", "forget", "keep"])]
    list: bool,
    /// Read all that is there, and compare it with its names
    #[arg(long, conflicts_with_all = ["name", "home", "forget", "keep"])]
    verify: bool,
    /// With --verify: move aside what is damaged, so that the next backup writes it again
    #[arg(long, requires = "verify")]
    repair: bool,
    /// Remove a point, and what only it names
    #[arg(long, value_name = "POINT", num_args = 1.., conflicts_with_all = ["name", "home"])]
    forget: Vec<String>,
    /// Remove all points but the newest ones
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..), conflicts_with_all = ["name", "home", "forget"])]
    keep: Option<u32>,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let to = absolute(&arguments.to)?;
    if arguments.list {
        return list(&to, output);
    }
    if arguments.verify {
        return verify(to, arguments.repair, output).await;
    }
    if arguments.keep.is_some() || !arguments.forget.is_empty() {
        return forget(to, arguments, output).await;
    }
    let point = arguments.name.clone().unwrap_or_else(|| calendar::stamp(calendar::now().as_secs()));
    let job = match &arguments.home {
        Some(home) => {
            let (home, to, point) = (home.clone(), to.clone(), point.clone());
            Job::local(move |teller| {
                let backed =
                    node::back_up_home(&home, &to, &point, &mut |_, bytes| teller.progress(bytes, None))?;
                Ok(node::told::backed(&point, &backed))
            })
        }
        None => Job::remote(node, "/v1/backup", &json!({"to": to, "point": point})).await?,
    };
    let backed = job.follow("backing up", output, |_, _| Ok(())).await?;
    told(&backed, &to, output)
}

fn told(backed: &Value, to: &Path, output: &Output) -> anyhow::Result<()> {
    let number = |field: &str| backed[field].as_u64().unwrap_or_default();
    if output.is_json() {
        output.json(backed)?;
    } else {
        output.line(&format!(
            "{} in {}: {} labels; {} objects were new, {}",
            backed["point"].as_str().unwrap_or_default(),
            to.display(),
            grouped(number("labels")),
            grouped(number("new_objects")),
            human_bytes(number("new_bytes")),
        ))?;
    }
    if number("missing") == 0 {
        return Ok(());
    }
    let first = backed["first_missing"][0].as_str().unwrap_or_default();
    let message = format!(
        "the point is there, and has gaps: {} objects that labels name were not to be had, {} of them damaged, as {first}",
        grouped(number("missing")),
        grouped(number("damaged")),
    );
    // Whoever removes older points after this one must not take it for whole.
    Err(Stop::new(Code::Damaged, message).suggest("sinew fsck, which tells the labels that are hurt").into())
}

fn list(to: &Path, output: &Output) -> anyhow::Result<()> {
    let node::Points { points, damaged, unseen } = node::BackupFolder::open(to)?.listing()?;
    if output.is_json() {
        points.iter().try_for_each(|point| output.json(&node::told::point(point)))?;
        damaged.iter().try_for_each(|(name, why)| output.json(&json!({"point": name, "damaged": why})))?;
        if unseen > 0 {
            output.json(&json!({"unseen": unseen}))?;
        }
        return unlisted(&damaged, unseen);
    }
    let row = |point: &node::Point| {
        let secrets = if point.files.iter().any(|file| file == "secrets") { "sealed" } else { "none" };
        vec![
            point.name.clone(),
            calendar::date(point.made_ms / 1000),
            grouped(point.labels),
            grouped(point.missing),
            secrets.to_owned(),
        ]
    };
    let broken =
        |(name, _): &(String, String)| [&**name, "damaged", "-", "-", "-"].map(str::to_owned).to_vec();
    let rows: Vec<_> = damaged.iter().map(broken).chain(points.iter().map(row)).collect();
    output.table(&["POINT", "MADE", "LABELS", "MISSING", "SECRETS"], &[2, 3], &rows)?;
    unlisted(&damaged, unseen)
}

/// An error if a point cannot be read, or was not looked at.
fn unlisted(damaged: &[(String, String)], unseen: u64) -> anyhow::Result<()> {
    if let Some((_, why)) = damaged.first() {
        let message =
            format!("{} points are damaged and cannot be restored; the first: {why}", damaged.len());
        let advice = "sinew backup DIR --verify, which tells what is damaged; then sinew backup DIR";
        return Err(Stop::new(Code::Damaged, message).suggest(advice).into());
    }
    if unseen > 0 {
        let message = format!("{} more points were not looked at: a backup has too many", grouped(unseen));
        return Err(Stop::new(Code::Failed, message).suggest("sinew backup DIR --forget POINT…").into());
    }
    Ok(())
}

async fn verify(to: PathBuf, repair: bool, output: &Output) -> anyhow::Result<()> {
    let again = to.clone();
    let job = Job::local(move |teller| {
        let check = node::Fsck { repair, ..node::Fsck::default() };
        let mut progress = |done, all| teller.progress(done, Some(all));
        let mut found = |finding| teller.found(&finding);
        let mut watch = node::Watch { progress: &mut progress, found: &mut found };
        Ok(node::told::checked(&node::fsck_backup(&to, &check, &mut watch)?))
    });
    let advice =
        "sinew backup DIR --verify --repair, then sinew backup DIR: what the node still has is written again";
    fsck::report(job, "verifying", repair, advice, output).await?;
    let points = node::BackupFolder::open(&again)?.points()?;
    match points.iter().find(|point| point.missing > 0) {
        None => Ok(()),
        Some(point) => {
            let (name, missing) = (&point.name, grouped(point.missing));
            let message = format!(
                "what is there is sound, and the point {name} lacks {missing} objects that it never had"
            );
            Err(Stop::new(Code::Damaged, message).suggest("sinew backup DIR, once the home has them").into())
        }
    }
}

async fn forget(to: PathBuf, arguments: &Arguments, output: &Output) -> anyhow::Result<()> {
    let points = match arguments.keep {
        Some(keep) => {
            let points = node::BackupFolder::open(&to)?.points()?;
            points.into_iter().skip(keep as usize).map(|point| point.name).collect()
        }
        None => arguments.forget.clone(),
    };
    let job = Job::local(move |_| {
        let node::Forgotten { points, objects, freed_bytes } = node::forget(&to, &points)?;
        Ok(json!({"forgotten": points, "objects": objects, "freed_bytes": freed_bytes}))
    });
    let forgotten = job.follow("forgetting", output, |_, _| Ok(())).await?;
    if output.is_json() {
        return output.json(&forgotten);
    }
    let names = forgotten["forgotten"].as_array().map(Vec::as_slice).unwrap_or_default();
    let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
    let freed = human_bytes(forgotten["freed_bytes"].as_u64().unwrap_or_default());
    match names.is_empty() {
        true => output.line(&format!("there is nothing to forget; {freed} less on the disk")),
        false => output.line(&format!("forgotten: {}; {freed} less on the disk", names.join(", "))),
    }
}
