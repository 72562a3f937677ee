// SPDX-License-Identifier: Apache-2.0
//! How deployments come to serve: all that are wanted together are checked before anything changes, and
//! requests find either what was before or all of them.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gateway::{Deployed, FunctionError, NotDeployed, Origin, Served};
use objects::Handle;
use sandbox::Spec;

use super::deployment::Deployment;
use super::traffic::{LIVE, Traffic};
use super::{Conflict, Deployments, Function, Version, check_in, check_own_name, is_name, is_ours, labels};

/// A deployment that can serve, as far as it alone goes.
struct Checked<'a> {
    name: &'a str,
    handle: Handle,
    deployment: Deployment,
    /// It took so long to be loaded.
    loading: Duration,
}

/// What is to become of it.
enum Plan {
    /// It is the newest version, and all that serves, or is not to.
    Stays(Arc<Served>),
    /// It is the newest version, and is to serve.
    Serves(Version),
    /// It is to be a version.
    Comes(Version),
}

/// What was written down, and how it is undone.
enum Step {
    /// This version.
    Added(u64),
    /// What serves; before that these did, with the deployment of the one that got most, or nothing.
    Moved(Option<(Traffic, Handle)>),
}

impl Plan {
    /// The version that is to serve.
    fn version(&self) -> Option<&Version> {
        match self {
            Self::Stays(_) => None,
            Self::Serves(version) | Self::Comes(version) => Some(version),
        }
    }
}

impl Deployments {
    /// Has deployments serve, or be there: all of them, or none.
    pub(super) fn deploy_together(
        &self,
        wanted: &[(String, Handle)],
        serves: bool,
        note: &str,
    ) -> Result<Vec<Deployed>, NotDeployed> {
        let mut all: Vec<Checked<'_>> = Vec::with_capacity(wanted.len());
        for (name, handle) in wanted {
            let is_twice = all.iter().any(|other| other.name == name);
            let twice = || FunctionError::Invalid("it is to be deployed twice at once".to_owned());
            let checked = if is_twice { Err(twice()) } else { self.checked(name, *handle) };
            all.push(checked.map_err(|error| NotDeployed { name: name.clone(), error })?);
        }
        if serves {
            for Checked { deployment, .. } in &all {
                self.make_ready(deployment.procedure, deployment.limits, &deployment.expected);
            }
        }
        let deployed = self.deploy_checked(
            &all,
            serves,
            &Origin { at_ms: crate::keys::now_ms(), note: note.to_owned() },
        );
        if deployed.is_err() {
            // Nothing serves that was made ready, but what did before.
            let is_new =
                |one: &&Checked<'_>| self.newest(one.name, one.handle).is_none_or(|(_, is_whole)| !is_whole);
            for Checked { name, deployment, .. } in all.iter().filter(is_new) {
                self.processes.provide(deployment.procedure, deployment.limits, &deployment.expected, false);
                self.provide(Some(name));
            }
        }
        deployed
    }

    /// Reads a deployment, and loads it once unless it is the newest version.
    fn checked<'a>(&self, name: &'a str, handle: Handle) -> Result<Checked<'a>, FunctionError> {
        if !is_name(name) {
            let why =
                format!("{name:?} is no name for a function: 1 to 63 of a-z 0-9 -, beginning with a letter");
            return Err(FunctionError::Invalid(why));
        }
        let deployment = Deployment::read(&self.store, handle).map_err(FunctionError::Invalid)?;
        check_own_name(&deployment, name).map_err(FunctionError::Invalid)?;
        let begun = Instant::now();
        let is_new = self.newest(name, handle).is_none();
        if is_new {
            self.check(&deployment)?;
        }
        let loading = if is_new { begun.elapsed() } else { Duration::ZERO };
        Ok(Checked { name, handle, deployment, loading })
    }

    /// The function's newest version, if this is it, and whether it is all that serves.
    fn newest(&self, name: &str, handle: Handle) -> Option<(Version, bool)> {
        let serving = self.serving.read();
        let function = serving.functions.get(name)?;
        let (number, version) = function.versions.last_key_value()?;
        let is_whole = function.live() == Some(&Traffic::whole(*number));
        (version.served.deployment == handle).then(|| (version.clone(), is_whole))
    }

    /// Loads it once, so that what cannot run never serves.
    fn check(&self, deployment: &Deployment) -> Result<(), FunctionError> {
        let Deployment { runtime, procedure, limits, expected, .. } = deployment;
        if let Some(ours) = deployment.secrets.iter().find(|name| is_ours(name)) {
            let why = format!("it asks for the secret {ours}, which is the node's own: no function gets it");
            return Err(FunctionError::Invalid(why));
        }
        if let Some(missing) = deployment.secrets.iter().find(|name| !self.secrets.has(name)) {
            let why =
                format!("it needs the secret {missing}, which is not set: `sinew secret set {missing}`");
            return Err(FunctionError::Invalid(why));
        }
        let most = self.processes.memory_bytes();
        // It is checked, and has no process.
        if deployment.is_declared() {
            return Ok(());
        }
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
            self.processes.load(*procedure, *limits, expected)
        };
        checked
            .map_err(|fault| FunctionError::Invalid(format!("the function does not load: {}", fault.detail)))
    }

    /// Has those that were checked serve, or be there.
    fn deploy_checked(
        &self,
        all: &[Checked<'_>],
        serves: bool,
        origin: &Origin,
    ) -> Result<Vec<Deployed>, NotDeployed> {
        let _changing = self.changing.lock();
        let mut plans: Vec<(&Checked<'_>, Plan)> = Vec::with_capacity(all.len());
        for one in all {
            let of_it = |error| NotDeployed { name: one.name.to_owned(), error };
            plans.push((one, self.plan(one, serves, origin).map_err(of_it)?));
        }
        if serves {
            // Before anything is written.
            self.fit(&plans)?;
        }
        self.write(&plans, serves)?;
        let mut deployed = Vec::with_capacity(plans.len());
        for (Checked { name, loading, .. }, plan) in &plans {
            if plan.version().is_some() {
                self.expect_again(Some(name));
                if serves {
                    self.provide(Some(name));
                }
            }
            if let Err(error) = self.prune(name) {
                // It serves; the next deployment tries again.
                tracing::warn!(name, %error, "old versions of a function could not be let go of");
            }
            let (served, is_changed) = match plan {
                Plan::Stays(served) => (served.clone(), false),
                Plan::Serves(version) | Plan::Comes(version) => (version.served.clone(), true),
            };
            deployed.push(Deployed { served, is_changed, loading: *loading });
        }
        Ok(deployed)
    }

    fn plan(&self, one: &Checked<'_>, serves: bool, origin: &Origin) -> Result<Plan, FunctionError> {
        if let Some((version, is_whole)) = self.newest(one.name, one.handle) {
            let stays = is_whole || !serves;
            return Ok(if stays { Plan::Stays(version.served) } else { Plan::Serves(version) });
        }
        let known = labels::read(&self.store, Some(one.name))?.remove(one.name).unwrap_or_default();
        let totals = self.serving.read().functions.get(one.name).map(|function| function.totals.clone());
        if totals.is_none() && !serves {
            let why = "a function's first version has to serve: deploy it with traffic";
            return Err(FunctionError::Invalid(why.to_owned()));
        }
        let totals = totals.unwrap_or_default();
        let numbered = (known.newest + 1, Some(origin.clone()));
        let version = self.version(one.name, numbered, one.handle, &totals);
        Ok(Plan::Comes(version.map_err(FunctionError::Invalid)?))
    }

    /// Whether the routes and hosts of all that is to serve go together.
    fn fit(&self, plans: &[(&Checked<'_>, Plan)]) -> Result<(), NotDeployed> {
        let changed = plans.iter().filter_map(|(one, plan)| Some((one.name, plan.version()?)));
        let changed: Vec<(&str, &Version)> = changed.collect();
        let serving = self.serving.read();
        let fits = serving.table(&changed).and_then(|_| serving.hosts(&changed));
        fits.map(drop)
            .map_err(|Conflict { name, why }| NotDeployed { name, error: FunctionError::Invalid(why) })
    }

    /// Writes what is to be down, and then has all of it serve at once. What cannot be written down whole is taken
    /// back as far as that can be.
    fn write(&self, plans: &[(&Checked<'_>, Plan)], serves: bool) -> Result<(), NotDeployed> {
        let mut done = Vec::new();
        for (Checked { name, handle, .. }, plan) in plans {
            if let Plan::Comes(version) = plan {
                let (number, origin) = (version.served.version, version.served.origin.as_ref());
                if let Err(error) = labels::add_version(&self.store, name, number, *handle, origin) {
                    self.take_back(&done);
                    return Err(NotDeployed::of(name, error));
                }
                done.push((*name, Step::Added(number)));
            }
        }
        for (Checked { name, .. }, plan) in plans.iter().filter(|_| serves) {
            let Some(version) = plan.version() else { continue };
            let before = |known: &Function| Some((known.live()?.clone(), known.main()?.served.deployment));
            let before = self.serving.read().functions.get(*name).and_then(before);
            let traffic = Traffic::whole(version.served.version);
            // Of the two labels that it writes, one may be written.
            done.push((*name, Step::Moved(before)));
            let deployment = version.served.deployment;
            if let Err(error) = labels::set_alias(&self.store, name, LIVE, &traffic, Some(deployment)) {
                self.take_back(&done);
                return Err(NotDeployed::of(name, error));
            }
        }
        let mut serving = self.serving.write();
        for (Checked { name, .. }, plan) in plans {
            let Some(version) = plan.version() else { continue };
            let number = version.served.version;
            let function =
                serving.functions.entry((*name).to_owned()).or_insert_with(|| Function::new(version));
            function.versions.insert(number, version.clone());
            if serves {
                function.aliases.insert(LIVE.to_owned(), Traffic::whole(number));
            }
        }
        // With what serves, and under one lock: no request finds a route of the one and a version of the other.
        serving.route_again();
        Ok(())
    }

    /// Undoes what was written, the last first.
    fn take_back(&self, done: &[(&str, Step)]) {
        for (name, step) in done.iter().rev() {
            let back = match step {
                Step::Added(number) => labels::remove_version(&self.store, name, *number),
                Step::Moved(Some((traffic, main))) => {
                    labels::set_alias(&self.store, name, LIVE, traffic, Some(*main))
                }
                Step::Moved(None) => labels::remove(&self.store, name),
            };
            if let Err(error) = back {
                tracing::error!(name, %error, "a function may serve another version when the node is started again; deploy it again");
            }
        }
    }
}
