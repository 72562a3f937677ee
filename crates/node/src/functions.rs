// SPDX-License-Identifier: Apache-2.0
//! The functions of a node: which deployment serves under which name.
//!
//! The labels of the store are the truth; what is here is read from them at
//! the start and follows each change. A deployment is checked whole before the
//! label moves, so that a bad one leaves the old one serving.

mod deployment;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use gateway::{CallReport, Counts, Deployed, Details, FunctionError, Functions, Instances, Served};
use objects::{Handle, Pairs};
use parking_lot::{Mutex, RwLock};
use sandbox::Spec;
use sandbox::wasm::Codelets;
use store::Store;

use crate::processes::{Processes, check_in};
use deployment::Deployment;

/// The label of a function is this and its name.
const PREFIX: &str = "function/";
const VERSIONS: &str = "/versions/";
/// Versions of one function that are kept.
const VERSIONS_MAX: usize = 20;
const NAME_LEN_MAX: usize = 63;
/// Numbers of versions have eight digits.
const VERSION_END: u64 = 100_000_000;

/// The deployments of a node.
pub(crate) struct Deployments {
    store: Arc<Store>,
    processes: Arc<Processes>,
    codelets: Arc<Codelets>,
    serving: RwLock<BTreeMap<String, Arc<Served>>>,
    /// Held while labels change: they are more than one.
    changing: Mutex<()>,
}

impl Deployments {
    /// Those that the store's labels name. One that cannot be read any more is
    /// left out, and told to the log.
    ///
    /// # Errors
    /// If the labels cannot be read.
    pub(crate) fn open(
        store: Arc<Store>,
        processes: Arc<Processes>,
        codelets: Arc<Codelets>,
    ) -> Result<Self, store::Error> {
        let (serving, changing) = (RwLock::default(), Mutex::default());
        let deployments = Self { store, processes, codelets, serving, changing };
        let labels = deployments.store.labels()?;
        let numbered = labels.iter().filter_map(|(label, handle)| {
            let (name, version) = label.strip_prefix(PREFIX)?.split_once(VERSIONS)?;
            Some(((name, *handle), version.parse::<u64>().ok()?))
        });
        let versions: HashMap<(&str, Handle), u64> = numbered.collect();
        for (label, handle) in &labels {
            let Some(name) = label.strip_prefix(PREFIX).filter(|name| is_name(name)) else { continue };
            let (version, handle) = (versions.get(&(name, *handle)).copied().unwrap_or(0), *handle);
            if let Err(reason) = deployments.serve(name, version, handle) {
                tracing::error!(name, %handle, reason, "a function cannot be served; deploy it again");
            }
        }
        Ok(deployments)
    }

    /// Has it serve, in memory.
    fn serve(&self, name: &str, version: u64, handle: Handle) -> Result<Arc<Served>, String> {
        let deployment = Deployment::read(&self.store, handle)?;
        self.processes.expect(deployment.procedure, deployment.expected);
        let mut serving = self.serving.write();
        let counts = serving.get(name).map_or_else(|| Arc::new(Counts::default()), |old| old.counts.clone());
        let served = Arc::new(deployment.served(name, version, handle, counts));
        let before = serving.insert(name.to_owned(), served.clone());
        drop(serving);
        if let Some(before) = before {
            self.forget(before.procedure);
        }
        Ok(served)
    }

    /// Lets go of what was said of a procedure that serves no more.
    fn forget(&self, procedure: Handle) {
        if self.serving.read().values().all(|served| served.procedure != procedure) {
            self.processes.forget(procedure);
        }
    }

    /// The versions of a function, the newest first.
    fn versions(&self, name: &str) -> Result<Vec<(u64, Handle)>, store::Error> {
        let prefix = format!("{PREFIX}{name}{VERSIONS}");
        let labels = self.store.labels()?;
        let numbered = labels
            .into_iter()
            .filter_map(|(label, handle)| Some((label.strip_prefix(&prefix)?.parse::<u64>().ok()?, handle)))
            .filter(|(number, _)| *number < VERSION_END);
        let mut versions: Vec<(u64, Handle)> = numbered.collect();
        versions.sort_unstable_by_key(|(version, _)| std::cmp::Reverse(*version));
        Ok(versions)
    }

    /// Loads it once, so that what cannot run never serves.
    fn check(&self, deployment: &Deployment) -> Result<(), FunctionError> {
        let Deployment { runtime, procedure, limits, .. } = deployment;
        let most = self.processes.memory_bytes();
        if runtime != "wasm" && limits.memory_bytes > most {
            let why = format!(
                "an instance may have {} bytes of memory, and all instances of this node {most}: lower memory in \
                 sinew.toml, or start the node with more (--memory)",
                limits.memory_bytes
            );
            return Err(FunctionError::Invalid(why));
        }
        let checked = if runtime == "wasm" {
            check_in(&*self.codelets, Spec { procedure: *procedure, limits: *limits })
        } else {
            self.processes.check(runtime, *procedure, *limits)
        };
        checked
            .map_err(|fault| FunctionError::Invalid(format!("the function does not load: {}", fault.detail)))
    }

    /// Moves the label, after the version's own was set.
    fn switch(&self, name: &str, version: u64, handle: Handle) -> Result<Arc<Served>, FunctionError> {
        self.store.set_label(&format!("{PREFIX}{name}"), handle)?;
        self.serve(name, version, handle).map_err(FunctionError::Invalid)
    }
}

fn is_name(name: &str) -> bool {
    name.len() <= NAME_LEN_MAX
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn label_of(name: &str, version: u64) -> String {
    format!("{PREFIX}{name}{VERSIONS}{version:08}")
}

fn unknown(name: &str) -> FunctionError {
    FunctionError::NotFound(format!("there is no function {name:?}"))
}

fn texts(pairs: &Pairs) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| (name.to_owned(), String::from_utf8_lossy(value).into_owned())).collect()
}

impl Functions for Deployments {
    fn served(&self, name: &str) -> Option<Arc<Served>> {
        self.serving.read().get(name).cloned()
    }

    fn all(&self) -> Vec<Arc<Served>> {
        self.serving.read().values().cloned().collect()
    }

    fn instances(&self, served: &Served) -> Instances {
        self.processes.instances(served)
    }

    fn take_report(&self, application: Handle) -> Option<CallReport> {
        self.processes.take_report(application)
    }

    fn details(&self, name: &str) -> Result<Details, FunctionError> {
        let served = self.served(name).ok_or_else(|| unknown(name))?;
        let deployment = Deployment::read(&self.store, served.deployment).map_err(FunctionError::Invalid)?;
        let (settings, serving) = (texts(&deployment.settings), texts(&deployment.serving));
        Ok(Details { served, versions: self.versions(name)?, settings, serving })
    }

    fn deploy(&self, name: &str, deployment: Handle) -> Result<Deployed, FunctionError> {
        if !is_name(name) {
            let why =
                format!("{name:?} is no name for a function: 1 to 63 of a-z 0-9 -, beginning with a letter");
            return Err(FunctionError::Invalid(why));
        }
        let read = Deployment::read(&self.store, deployment).map_err(FunctionError::Invalid)?;
        if self.served(name).is_none_or(|served| served.deployment != deployment) {
            self.check(&read)?;
        }
        let _changing = self.changing.lock();
        if let Some(served) = self.served(name).filter(|served| served.deployment == deployment) {
            return Ok(Deployed { served, is_changed: false });
        }
        let versions = self.versions(name)?;
        let version = versions.first().map_or(1, |(newest, _)| newest + 1);
        self.store.set_label(&label_of(name, version), deployment)?;
        let served = self.switch(name, version, deployment)?;
        for (old, _) in versions.iter().skip(VERSIONS_MAX - 1) {
            self.store.remove_label(&label_of(name, *old))?;
        }
        Ok(Deployed { served, is_changed: true })
    }

    fn roll_back(&self, name: &str, version: Option<u64>) -> Result<Deployed, FunctionError> {
        let _changing = self.changing.lock();
        let now = self.served(name).ok_or_else(|| unknown(name))?;
        let versions = self.versions(name)?;
        let found = match version {
            Some(wanted) => versions.iter().find(|(version, _)| *version == wanted),
            None => versions.iter().find(|(version, _)| *version < now.version),
        };
        let &(version, deployment) = found.ok_or_else(|| {
            let kept: Vec<String> = versions.iter().map(|(version, _)| version.to_string()).collect();
            FunctionError::NotFound(format!("{name:?} has no such version; it has {}", kept.join(", ")))
        })?;
        Deployment::read(&self.store, deployment).map_err(FunctionError::Invalid)?;
        let is_changed = version != now.version;
        let served = self.switch(name, version, deployment)?;
        Ok(Deployed { served, is_changed })
    }

    fn remove(&self, name: &str) -> Result<(), FunctionError> {
        let _changing = self.changing.lock();
        let removed = self.served(name).ok_or_else(|| unknown(name))?;
        // The name first: versions without one serve nobody.
        self.store.remove_label(&format!("{PREFIX}{name}"))?;
        for (version, _) in self.versions(name)? {
            self.store.remove_label(&label_of(name, version))?;
        }
        self.serving.write().remove(name);
        self.forget(removed.procedure);
        Ok(())
    }
}

#[cfg(test)]
mod tests;
