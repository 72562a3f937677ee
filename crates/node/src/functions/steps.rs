// SPDX-License-Identifier: Apache-2.0
//! The functions of a workflow: versions of their own, made of the workflow's when
//! a run first asks for one (`docs/spec/workflows.md`, section 4).

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gateway::{Counts, FunctionError, Served, StepSettings, VersionCounts};
use objects::{Handle, Limits, Pairs, TreeBuilder};
use parking_lot::Mutex;
use sandbox::process::Image;
use store::Store;

use super::deployment::Deployment;
use super::{Deployments, unknown};
use crate::processes::Expected;

/// Functions of one workflow, and ways in which they are run.
const STEPS_MAX: usize = 256;
/// Of one attempt, where the workflow does not say.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);
/// Steps of one function that may wait for an instance: fewer than a run begins at once.
const WAITING: u32 = 4096;

/// Those of one version.
#[derive(Clone, Default)]
pub(super) struct Steps(Arc<Mutex<Known>>);

/// By how they are run: what they are, and what instances they may have.
type Known = HashMap<StepSettings, (Arc<Served>, Expected)>;

impl Steps {
    /// What they run, and as what.
    pub(super) fn procedures(&self) -> Vec<(Handle, Expected)> {
        self.0.lock().values().map(|(served, expected)| (served.procedure, *expected)).collect()
    }
}

impl Deployments {
    pub(super) fn step_of(
        &self,
        workflow: &Served,
        settings: &StepSettings,
    ) -> Result<Arc<Served>, FunctionError> {
        let steps = {
            let serving = self.serving.read();
            let function = serving.functions.get(&workflow.name);
            let version = function.and_then(|function| function.versions.get(&workflow.version));
            version.map(|version| version.steps.clone()).ok_or_else(|| unknown(&workflow.name))?
        };
        let mut known = steps.0.lock();
        if let Some((served, _)) = known.get(settings) {
            return Ok(served.clone());
        }
        if known.len() >= STEPS_MAX {
            let why = format!("a workflow has at most {STEPS_MAX} functions, each with its own settings");
            return Err(FunctionError::Invalid(why));
        }
        let deployment =
            Deployment::read(&self.store, workflow.deployment).map_err(FunctionError::Invalid)?;
        self.has_room_for(workflow, settings, deployment.limits.memory_bytes)?;
        let made = made(&self.store, workflow, settings, &deployment).map_err(FunctionError::Invalid)?;
        self.processes.expect(made.0.procedure, made.1);
        known.insert(settings.clone(), made.clone());
        Ok(made.0)
    }

    /// A step waits for room as long as others have it, but not for what there never is: the workflow's own
    /// instance waits for the step, and has its memory meanwhile.
    fn has_room_for(
        &self,
        workflow: &Served,
        settings: &StepSettings,
        usual_bytes: u64,
    ) -> Result<(), FunctionError> {
        let bytes = settings.memory_bytes.unwrap_or(usual_bytes);
        let most = self.processes.room_beside(workflow.procedure);
        if bytes <= most {
            return Ok(());
        }
        let why = format!(
            "{} may have {bytes} bytes of memory, and all instances of this node {}, of which {most} are left beside the \
             workflow itself: lower its memory or that of {}, or start the node with more (--memory)",
            settings.handler,
            self.processes.memory_bytes(),
            workflow.name
        );
        Err(FunctionError::Invalid(why))
    }
}

/// The workflow's own version, but for what is said of this function.
fn made(
    store: &Store,
    workflow: &Served,
    settings: &StepSettings,
    deployment: &Deployment,
) -> Result<(Arc<Served>, Expected), String> {
    let short = settings.handler.rsplit('.').next().unwrap_or_default();
    let name = format!("{}.{short}", workflow.name);
    let timeout = settings.timeout.unwrap_or(DEFAULT_TIMEOUT);
    let mut pairs = deployment.settings.clone();
    let mut set =
        |name: &str, value: String| pairs.set(name, value.as_bytes()).map_err(|error| error.to_string());
    set("function", name.clone())?;
    set("handler", settings.handler.clone())?;
    set("part", "step".to_owned())?;
    set("timeout-ms", timeout.as_millis().to_string())?;
    if !settings.may_map && deployment.settings.get("values").is_some() {
        set("values", "send".to_owned())?;
    }
    if let Some(percent) = settings.cpu_percent {
        set("cpu-percent", percent.to_string())?;
    }
    let limits = Limits {
        memory_bytes: settings.memory_bytes.unwrap_or(deployment.limits.memory_bytes),
        ..deployment.limits
    };
    let [_, runtime, code, layers, _] = *workflow.prefix.as_slice() else {
        return Err("a workflow is a function in a process".to_owned());
    };
    let image: TreeBuilder = [runtime, code, layers, kept(store, &pairs)].into_iter().collect();
    Image::read(store, image.view()).map_err(|fault| fault.detail)?;
    let procedure = store.keep_tree(image.view());
    let mut prefix = vec![limits.handle().ok_or("its limits are none")?];
    prefix.extend(image.view().iter());
    let expected = Expected {
        concurrency: settings.concurrency,
        waiting: WAITING,
        idle: deployment.expected.idle,
        timeout: Some(timeout),
        ..Expected::default()
    };
    let served = Served {
        name,
        prefix,
        procedure,
        timeout,
        memory_bytes: limits.memory_bytes,
        concurrency: settings.concurrency,
        is_pure: settings.is_pure,
        is_workflow: false,
        maps_values: false,
        declaration: None,
        is_idempotent: false,
        schedules: Vec::new(),
        routes: Vec::new(),
        hosts: Vec::new(),
        is_public: false,
        tool: None,
        origin: None,
        counts: Arc::new(Counts::default()),
        version_counts: VersionCounts::default(),
        ..deployment.served(&workflow.name, (workflow.version, None), workflow.deployment, Arc::default())
    };
    Ok((Arc::new(served), expected))
}

/// Settings as a procedure has them.
fn kept(store: &Store, pairs: &Pairs) -> Handle {
    for (name, value) in pairs.iter() {
        store.keep_blob(name.as_bytes());
        store.keep_blob(value);
    }
    let tree = store.keep_tree(pairs.tree().view());
    tree.lowered().unwrap_or(tree)
}
