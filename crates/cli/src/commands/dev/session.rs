// SPDX-License-Identifier: Apache-2.0
//! Which functions there are, and what of them serves.
//!
//! After every change all functions are looked at: one whose deployment is
//! another than before is switched. Their files are not read again unless
//! they changed, and only what the node was not sent before is sent.

use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use objects::Handle;
use serde_json::json;

use super::debug::Debug;
use super::watch::Changes;
use crate::address::Address;
use crate::commands::deploy::{Wanted, build, not_deployed, url_of, wanted};
use crate::deployment::{self, Uploaded};
use crate::exit::{self, Stop};
use crate::manifest::Function;
use crate::node_api::Node;
use crate::output::Output;
use crate::progress::Progress;
use crate::quantity::human_time;
use crate::upload::{Remembered, Uplink};

/// The functions of a manifest, and the node that serves them.
pub(super) struct Session<'a> {
    manifest: PathBuf,
    only: Vec<String>,
    node: Node,
    debug: Option<Debug>,
    output: &'a Output,
    remembered: Remembered,
    known: BTreeMap<String, Known>,
    /// What serves was told once, all together.
    has_begun: bool,
}

/// What became of a function so far.
#[derive(Debug, Clone, Default)]
struct Known {
    runtime: &'static str,
    /// The last deployment that was tried, whether it serves or not.
    tried: Option<Handle>,
    /// Where it answers, if it does.
    url: Option<String>,
    /// What its build said, the last time: without one there is nothing to deploy.
    is_built: bool,
    /// Names of secrets for want of which it does not serve.
    lacks: Vec<String>,
}

/// How often it is looked whether a secret has been set that a function lacks.
const SECRETS_EVERY: Duration = Duration::from_secs(1);

/// How long the parts of a reload took.
#[derive(Debug, Clone, Copy)]
struct Took {
    upload: Duration,
    switch: Duration,
}

impl<'a> Session<'a> {
    pub(super) fn new(
        manifest: PathBuf,
        only: Vec<String>,
        address: Address,
        debug: Option<Debug>,
        output: &'a Output,
    ) -> Self {
        let node = Node::new(address);
        let (remembered, known) = (Remembered::default(), BTreeMap::new());
        Self { manifest, only, node, debug, output, remembered, known, has_begun: false }
    }

    /// Deploys everything, before anything is watched.
    pub(super) async fn begin(&mut self) -> anyhow::Result<()> {
        self.reload(&Changes::everything()).await?;
        self.has_begun = true;
        if let Some(debug) = &mut self.debug {
            debug.tell(self.output)?;
        }
        Ok(())
    }

    /// Name, runtime and address of what serves.
    pub(super) fn serving(&self) -> Vec<(&str, &'static str, &str)> {
        let served = self.known.iter();
        served
            .filter_map(|(name, known)| Some((name.as_str(), known.runtime, known.url.as_deref()?)))
            .collect()
    }

    /// Deploys what has changed. Whatever is wrong with functions is told, and
    /// no error; an error is that nothing can be told any more.
    pub(super) async fn reload(&mut self, changes: &Changes) -> anyhow::Result<()> {
        let all = match wanted(std::slice::from_ref(&self.manifest), &self.only) {
            Ok(all) => all,
            Err(error) => return self.wrong(None, &error),
        };
        self.remove_others(&all).await?;
        for mut wanted in all {
            // Whoever edits has one that was loaded.
            wanted.function.min_instances = None;
            if let Some(debug) = &mut self.debug {
                debug.prepare(&mut wanted);
            }
            let name = wanted.function.name.clone();
            if let Err(error) = self.function(&wanted, changes).await {
                if exit::is_broken_pipe(&error) {
                    return Err(error);
                }
                self.wrong(Some(&name), &error)?;
            }
        }
        match &mut self.debug {
            Some(debug) if self.has_begun => debug.tell(self.output),
            _ => Ok(()),
        }
    }

    /// Functions that the manifest does not have any more.
    async fn remove_others(&mut self, all: &[Wanted]) -> anyhow::Result<()> {
        let names: HashSet<&str> = all.iter().map(|wanted| wanted.function.name.as_str()).collect();
        let gone: Vec<String> =
            self.known.keys().filter(|name| !names.contains(name.as_str())).cloned().collect();
        for name in gone {
            self.known.remove(&name);
            match self.node.delete_function(&name).await {
                Ok(()) if self.output.is_json() => {
                    self.output.json(&json!({"event": "removed", "function": name}))?;
                }
                Ok(()) => self.output.line(&format!("removed {name}"))?,
                Err(error) => self.wrong(Some(&name), &error)?,
            }
        }
        Ok(())
    }

    /// Builds, uploads and switches a function, as far as that is needed.
    async fn function(&mut self, wanted: &Wanted, changes: &Changes) -> anyhow::Result<()> {
        let Wanted { folder, function } = wanted;
        let runtime = function.runtime.name();
        let known = self.known.entry(function.name.clone()).or_default();
        known.runtime = runtime;
        if let Some(build) = &function.build
            && (!known.is_built || changes.concern(build))
        {
            known.is_built = false;
            build::run(&function.name, build, folder, self.output).await?;
            known.is_built = true;
        }
        let begun = Instant::now();
        let uploaded = match self.upload(function, folder).await {
            Ok(uploaded) => uploaded,
            Err(error) => {
                // It is not known what of it has arrived.
                self.remembered = Remembered::default();
                return Err(error);
            }
        };
        let (upload, deployment) = (begun.elapsed(), uploaded.deployment);
        let known = self.known.entry(function.name.clone()).or_default();
        if known.tried == Some(deployment) {
            return Ok(());
        }
        known.tried = Some(deployment);
        let begun = Instant::now();
        let deployed = self.node.deploy(&function.name, deployment, true).await;
        let deployed = match deployed {
            Ok(deployed) => deployed,
            Err(error) => {
                let lacks = self.lacking(function).await;
                let known = self.known.entry(function.name.clone()).or_default();
                // What the node did not judge is tried again, and what only lacks a secret.
                known.tried = known.tried.filter(|_| is_judged(&error) && lacks.is_empty());
                known.lacks = lacks;
                return Err(not_deployed(&function.name, error));
            }
        };
        let took = Took { upload, switch: begun.elapsed() };
        let url = url_of(&function.name, &mut self.node).await;
        let known = self.known.entry(function.name.clone()).or_default();
        known.lacks.clear();
        let is_new = known.url.replace(url.clone()).is_none();
        // Once for a function: whoever goes on without it has read it.
        if is_new
            && !self.output.is_json()
            && let Some(advice) = uploaded.advice(function, took.switch)
        {
            self.output.say(&advice.text(&function.name));
        }
        if !self.output.is_json() {
            if !self.has_begun {
                return Ok(());
            }
            if is_new {
                return self.output.line(&format!("{} ({runtime})  {url}", function.name));
            }
        }
        self.reloaded(&function.name, runtime, deployed.version, took, changes)
    }

    /// Secrets that a function names and the node has not.
    async fn lacking(&mut self, function: &Function) -> Vec<String> {
        let set = if function.secrets.is_empty() { Ok(Vec::new()) } else { self.node.secrets().await };
        // Without a list nothing is known to be missing.
        let Ok(set) = set else { return Vec::new() };
        let is_set = |name: &&String| set.iter().any(|secret| secret["name"] == name.as_str());
        function.secrets.iter().filter(|name| !is_set(name)).cloned().collect()
    }

    /// Waits until a function has the secrets that it lacked; for ever if none lacks any.
    pub(super) async fn secrets_come(&mut self) {
        loop {
            if self.known.values().all(|known| known.lacks.is_empty()) {
                return std::future::pending::<()>().await;
            }
            tokio::time::sleep(SECRETS_EVERY).await;
            let Ok(set) = self.node.secrets().await else { continue };
            let is_set = |name: &String| set.iter().any(|secret| secret["name"] == name.as_str());
            let complete = |known: &&mut Known| !known.lacks.is_empty() && known.lacks.iter().all(is_set);
            let mut have_come = false;
            for known in self.known.values_mut().filter(complete) {
                known.lacks.clear();
                have_come = true;
            }
            if have_come {
                return;
            }
        }
    }

    async fn upload(&mut self, function: &Function, folder: &Path) -> anyhow::Result<Uploaded> {
        let progress = Progress::bytes(self.output, "uploading", None, false);
        let uplink = Uplink::new(&mut self.node, self.output, progress);
        let mut uplink = uplink.remembering(&mut self.remembered);
        let uploaded = deployment::upload(function, folder, &mut uplink).await?;
        uplink.flush().await?;
        Ok(uploaded)
    }

    fn reloaded(
        &self,
        name: &str,
        runtime: &str,
        version: u64,
        took: Took,
        changes: &Changes,
    ) -> anyhow::Result<()> {
        let whole = changes.since.elapsed();
        let ms = |time: Duration| time.as_micros() as f64 / 1000.0;
        if self.output.is_json() {
            return self.output.json(&json!({
                "event": "reloaded", "function": name, "runtime": runtime, "version": version, "ms": ms(whole),
                "upload_ms": ms(took.upload), "switch_ms": ms(took.switch),
            }));
        }
        let parts = match self.output.is_verbose() {
            true => format!(" (upload {}, load {})", human_time(took.upload), human_time(took.switch)),
            false => String::new(),
        };
        self.output.line(&format!("reloaded {name} ({runtime}) in {} ms{parts}", whole.as_millis()))
    }

    /// Says what is wrong; what served before still does.
    fn wrong(&self, name: Option<&str>, error: &anyhow::Error) -> anyhow::Result<()> {
        if self.output.is_json() {
            return self.output.json(&json!({
                "event": "failed", "function": name, "error": places(&error.to_string()),
            }));
        }
        if name.and_then(|name| self.known.get(name)).is_some_and(|known| known.url.is_some()) {
            let told = error.to_string();
            self.output
                .say(&format!("error: {}\n  the version before still serves", places(told.trim_end())));
        } else {
            self.output.say(&places(&exit::human(error, false)));
        }
        Ok(())
    }
}

/// Whether the node has found something wrong with a deployment, which will not go away by itself.
fn is_judged(error: &anyhow::Error) -> bool {
    let problem = error.downcast_ref::<Stop>().and_then(|stop| stop.problem.as_ref());
    problem.is_some_and(|problem| problem["type"] == "urn:sinew:problem:bad-deployment")
}

/// Files of a function as they are called outside of its container.
pub(super) fn places(text: &str) -> String {
    text.replace("file:///app/", "").replace("/app/", "")
}

#[cfg(test)]
mod tests {
    #[test]
    fn places_in_the_container_are_those_of_the_source() {
        let told = super::places("  File \"/app/main.py\", line 3\n    at file:///app/lib/a.mjs:4:2");
        assert_eq!(told, "  File \"main.py\", line 3\n    at lib/a.mjs:4:2");
    }
}
