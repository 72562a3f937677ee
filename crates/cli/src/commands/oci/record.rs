// SPDX-License-Identifier: Apache-2.0
//! What is written down of a container that was made.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use node::bundle::{Birth, Status};
use serde_json::{Map, Value, json};

use super::fields::Fields;

const FILE: &str = "record.json";

/// All that operations after `create` need to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) id: String,
    /// Of the specification.
    pub(super) version: String,
    pub(super) bundle: PathBuf,
    pub(super) annotations: Vec<(String, String)>,
    pub(super) control_group: PathBuf,
    pub(super) process: Birth,
}

impl Record {
    /// Written as a whole or not at all.
    pub(super) fn write(&self, folder: &Path) -> anyhow::Result<()> {
        let record = json!({
            "id": self.id,
            "ociVersion": self.version,
            "bundle": self.bundle,
            "annotations": self.annotations(),
            "controlGroup": self.control_group,
            "pid": self.process.pid,
            "startTicks": self.process.ticks,
        });
        let new = folder.join("record.new");
        fs::write(&new, record.to_string()).and_then(|()| fs::rename(&new, folder.join(FILE)))?;
        Ok(())
    }

    pub(super) fn read(folder: &Path) -> anyhow::Result<Self> {
        let text = fs::read_to_string(folder.join(FILE)).context("it is still being made, or was not")?;
        let mut fields = Fields::new("", serde_json::from_str(&text)?)?;
        let mut text = |name: &str| -> anyhow::Result<String> {
            let found = fields.string(name)?;
            fields.required(name, found)
        };
        let (id, version) = (text("id")?, text("ociVersion")?);
        let (bundle, control_group) = (text("bundle")?.into(), text("controlGroup")?.into());
        let annotations = fields.pairs("annotations")?;
        let (pid, ticks) = (fields.number("pid")?, fields.number("startTicks")?);
        let process =
            Birth { pid: fields.required("pid", pid)?, ticks: fields.required("startTicks", ticks)? };
        Ok(Self { id, version, bundle, annotations, control_group, process })
    }

    fn annotations(&self) -> Map<String, Value> {
        self.annotations.iter().map(|(name, value)| (name.clone(), Value::from(value.as_str()))).collect()
    }

    /// The state as the specification has it.
    pub(super) fn state(&self, status: Status) -> String {
        let mut state = json!({
            "ociVersion": self.version,
            "id": self.id,
            "status": status.name(),
            "bundle": self.bundle,
        });
        // A process that has ended has no number.
        if status != Status::Stopped {
            state["pid"] = self.process.pid.into();
        }
        if !self.annotations.is_empty() {
            state["annotations"] = self.annotations().into();
        }
        state.to_string()
    }
}
