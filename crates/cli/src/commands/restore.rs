// SPDX-License-Identifier: Apache-2.0
//! `sinew restore`: a home of a point in time, or labels of one in a running node.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use serde_json::{Value, json};

use crate::exit::{Code, Stop};
use crate::home::default_home;
use crate::node_api::Node;
use crate::output::Output;
use crate::quantity::{grouped, human_bytes};
use crate::upkeep::{Job, absolute};

/// From where, what, and where to.
#[derive(Debug, Args)]
#[command(
    after_help = "Examples:\n  sinew restore /mnt/b --to DIR                    makes a home of the newest point\n  \
    sinew restore /mnt/b --to DIR --secrets-key KEY  with the secrets, which that file opens\n  \
    sinew restore /mnt/b --label corpus              puts a label back into the running node\n  \
    sinew restore /mnt/b --label data/ --point P     and all below a name, from a point of this name\n\n\
    A home is made in a folder that is empty or not there yet, and is one when all of it is there and verified:\n\
    what is interrupted goes on when it is run again."
)]
pub(crate) struct Arguments {
    /// A folder that `sinew backup` has written
    #[arg(value_name = "DIR")]
    from: PathBuf,
    /// The new home [default: the usual one]
    #[arg(long, value_name = "HOME", conflicts_with = "label")]
    to: Option<PathBuf>,
    /// Which point [default: the newest]
    #[arg(long, value_name = "POINT")]
    point: Option<String>,
    /// The file secrets.key of the home that was backed up
    #[arg(long, value_name = "FILE", conflicts_with = "label")]
    secrets_key: Option<PathBuf>,
    /// Restore what there is, if something of the point is damaged or missing
    #[arg(long, conflicts_with = "label")]
    partial: bool,
    /// Put this label back into the running node; NAME/ for all below it
    #[arg(long, value_name = "NAME")]
    label: Vec<String>,
    /// With --label: also where the label names something else now
    #[arg(long, requires = "label")]
    replace: bool,
}

pub(crate) async fn run(arguments: &Arguments, node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let from = absolute(&arguments.from)?;
    if !arguments.label.is_empty() {
        let wish = json!({
            "from": from, "point": arguments.point, "labels": arguments.label, "replace": arguments.replace,
        });
        let restored =
            Job::remote(node, "/v1/restore", &wish).await?.follow("restoring", output, |_, _| Ok(()));
        let restored = restored.await?;
        if output.is_json() {
            output.json(&restored)?;
        } else {
            output.line(&sentence(&restored))?;
        }
        return whole(&restored);
    }
    let to = arguments.to.clone().or_else(default_home);
    let to = absolute(&to.context("there is no home folder; name one with --to")?)?;
    let key = arguments.secrets_key.as_deref().map(read_key).transpose()?;
    let restored = home(from, &to, key, arguments).follow("restoring", output, |_, _| Ok(())).await?;
    if output.is_json() {
        output.json(&restored)?;
        return whole(&restored);
    }
    output.line(&format!(
        "{}\n{} is a home now: sinew up --home {}",
        sentence(&restored),
        to.display(),
        to.display()
    ))?;
    output.say(&format!(
        "its receipts will be another signer's: no point has node.key. To stay the same one, copy the old home's node.key to {} before it starts",
        to.join("node.key").display()
    ));
    let damaged = restored["damaged_points"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !damaged.is_empty() {
        let names: Vec<&str> = damaged.iter().filter_map(Value::as_str).collect();
        output.say(&format!("points that are damaged, and may be newer: {}", names.join(", ")));
    }
    if restored["secrets"] == "sealed" {
        output.say(&format!(
            "secrets are in {}, and no backup has what opens them: restore into another folder with --secrets-key FILE, or set them again",
            to.join("secrets.sealed").display()
        ));
    }
    whole(&restored)
}

/// An error if something of what was restored is missing.
fn whole(restored: &Value) -> anyhow::Result<()> {
    match restored["missing"].as_u64().unwrap_or_default() {
        0 => Ok(()),
        missing => {
            let message = format!("{} objects of it are missing", grouped(missing));
            Err(Stop::new(Code::Damaged, message)
                .suggest("sinew fsck, which tells the labels that are hurt")
                .into())
        }
    }
}

fn home(from: PathBuf, to: &Path, key: Option<Vec<u8>>, arguments: &Arguments) -> Job {
    let (to, point, partial) = (to.to_owned(), arguments.point.clone(), arguments.partial);
    Job::local(move |teller| {
        let folder = node::BackupFolder::open(&from)?;
        // The newest that can be read: one that cannot may be newer.
        let damaged = if point.is_some() { Vec::new() } else { folder.listing()?.damaged };
        let damaged: Vec<String> = damaged.into_iter().map(|(name, _)| name).collect();
        let point = node::point_of(&folder, point.as_deref())?;
        let mut progress = |_, bytes| teller.progress(bytes, None);
        let restored = node::restore_home(&folder, &point, &to, key, partial, &mut progress);
        let (restored, secrets) = restored.map_err(|error| match error {
            // Its exit code is the store's matter.
            node::UpkeepError::Store(error) => anyhow::Error::from(error),
            other => other.into(),
        })?;
        let mut told = node::told::restored(&point, &restored);
        told["home"] = json!(to);
        told["damaged_points"] = json!(damaged);
        told["secrets"] = match secrets {
            node::SecretsRestored::None => "none",
            node::SecretsRestored::All => "restored",
            node::SecretsRestored::Sealed => "sealed",
        }
        .into();
        Ok(told)
    })
}

fn sentence(restored: &Value) -> String {
    let number = |field: &str| restored[field].as_u64().unwrap_or_default();
    format!(
        "{}: {} labels, {} objects, {}",
        restored["point"].as_str().unwrap_or_default(),
        grouped(number("labels")),
        grouped(number("new_objects")),
        human_bytes(number("new_bytes")),
    )
}

/// The file that opens secrets.
fn read_key(path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        let stop = Stop::new(Code::NotFound, format!("{} cannot be read: {error}", path.display()));
        stop.suggest("give the file secrets.key of the home that was backed up").into()
    })
}
