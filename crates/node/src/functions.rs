// SPDX-License-Identifier: Apache-2.0
//! The functions of a node: their versions, and which of them serve.
//!
//! The labels of the store are the truth; what is here is read from them at
//! the start and follows each change. A deployment is checked whole before a
//! label moves, so that a bad one leaves the old one serving.

mod declared;
mod deploying;
mod deployment;
mod labels;
mod module;
mod routes;
mod steps;
pub(crate) mod tool;
mod traffic;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use gateway::{
    CallReport, Counts, Deployed, Details, EgressCounts, FunctionError, Functions, Instances, Interpreter,
    NotDeployed, Origin, RouteError, Routed, Served, StepSettings,
};
use objects::{Handle, Limits, Pairs};
use parking_lot::{Mutex, RwLock};
use sandbox::process::Language;
use sandbox::wasm::Codelets;
use store::Store;

use crate::processes::{Expected, Processes, check_in};
use crate::secrets::{SecretError, Secrets, is_ours};
pub use declared::check_workflow;
use deployment::Deployment;
use routes::{Route, RouteTable};
use steps::Steps;
use traffic::{LIVE, Traffic, is_alias};

/// Versions of one function that are kept.
const VERSIONS_MAX: usize = 20;
const NAME_LEN_MAX: usize = 63;
/// Aliases of one function.
const ALIASES_MAX: usize = 32;

/// The deployments of a node.
pub(crate) struct Deployments {
    store: Arc<Store>,
    processes: Arc<Processes>,
    codelets: Arc<Codelets>,
    secrets: Arc<Secrets>,
    serving: RwLock<Serving>,
    /// Held while labels change: they are more than one.
    changing: Mutex<()>,
}

/// All that may be asked for.
#[derive(Default)]
struct Serving {
    functions: BTreeMap<String, Function>,
    routes: RouteTable,
    /// Whose a host name is.
    hosts: HashMap<String, String>,
}

/// A function with its versions.
struct Function {
    versions: BTreeMap<u64, Version>,
    /// With the one that serves under the function's own name.
    aliases: BTreeMap<String, Traffic>,
    totals: Arc<Counts>,
}

#[derive(Clone)]
struct Version {
    served: Arc<Served>,
    limits: Limits,
    expected: Expected,
    routes: Arc<[Route]>,
    /// Names of secrets that it needs.
    secrets: Arc<[String]>,
    /// Of a workflow: its functions, as far as runs asked for them.
    steps: Steps,
}

impl Version {
    /// Its procedure, and those of its steps.
    fn procedures(&self) -> impl Iterator<Item = (Handle, Expected)> {
        let own = (self.served.procedure, self.expected);
        std::iter::once(own).chain(self.steps.procedures())
    }
}

impl Function {
    /// One that has no version yet, and is to have this one.
    fn new(version: &Version) -> Self {
        let totals = Arc::clone(&version.served.counts);
        Self { versions: BTreeMap::new(), aliases: BTreeMap::new(), totals }
    }

    fn live(&self) -> Option<&Traffic> {
        self.aliases.get(LIVE)
    }

    /// The version that most requests get.
    fn main(&self) -> Option<&Version> {
        self.versions.get(&self.live()?.main())
    }

    fn version_of(&self, qualifier: Option<&str>, lot: u32) -> Option<&Version> {
        let number = match qualifier.map(|text| (text, text.parse())) {
            Some((_, Ok(number))) => number,
            Some((alias, Err(_))) => self.aliases.get(alias)?.version(lot),
            None => self.live()?.version(lot),
        };
        self.versions.get(&number)
    }

    /// All that requests may get.
    fn versions_of(&self, qualifier: Option<&str>) -> Vec<&Version> {
        let of = |alias: &str| {
            let traffic = self.aliases.get(alias);
            let has = |number: &u64| traffic.is_some_and(|traffic| traffic.has(*number));
            self.versions.iter().filter(|(number, _)| has(number)).map(|(_, version)| version).collect()
        };
        match qualifier.map(|text| (text, text.parse())) {
            Some((_, Ok(number))) => self.versions.get(&number).into_iter().collect(),
            Some((alias, Err(_))) => of(alias),
            None => of(LIVE),
        }
    }

    /// All versions, those last that serve under its own name, and whether they do. Versions may have one procedure:
    /// then the last of these says how that is run.
    fn by_traffic(&self) -> Vec<(&Version, bool)> {
        let shares = |number: u64| {
            let live = self.live();
            (live.is_some_and(|live| live.has(number)), live.is_some_and(|live| live.main() == number))
        };
        let mut versions: Vec<_> =
            self.versions.iter().map(|(number, version)| (shares(*number), version)).collect();
        versions.sort_by_key(|(shares, _)| *shares);
        versions.into_iter().map(|((serves, _), version)| (version, serves)).collect()
    }

    /// Versions that some alias names.
    fn reached(&self) -> impl Iterator<Item = &Version> {
        let reached = |number: &u64| self.aliases.values().any(|traffic| traffic.has(*number));
        self.versions.iter().filter(move |(number, _)| reached(number)).map(|(_, version)| version)
    }
}

/// What cannot serve beside another function.
struct Conflict {
    name: String,
    /// For people.
    why: String,
}

impl From<Conflict> for FunctionError {
    fn from(conflict: Conflict) -> Self {
        Self::Invalid(conflict.why)
    }
}

impl Serving {
    /// The versions that most requests get, with some functions as they are going to be.
    fn main_versions<'a>(
        &'a self,
        changed: &'a [(&'a str, &'a Version)],
    ) -> impl Iterator<Item = (&'a str, &'a Version)> {
        let is_changed = |name: &str| changed.iter().any(|(other, _)| *other == name);
        let others = self.functions.iter().filter(move |(name, _)| !is_changed(name));
        let others = others.filter_map(|(name, function)| Some((name.as_str(), function.main()?)));
        others.chain(changed.iter().copied())
    }

    /// Makes the table of routes. Those in each other's way were refused when
    /// they came; should there be any, none but the gateway's own is served.
    fn route_again(&mut self) {
        match self.table(&[]) {
            Ok(routes) => self.routes = routes,
            Err(Conflict { why, .. }) => {
                tracing::error!(why, "no route is served; deploy one of the two again")
            }
        }
        match self.hosts(&[]) {
            Ok(hosts) => self.hosts = hosts,
            Err(Conflict { why, .. }) => {
                tracing::error!(why, "hosts stay as they were; deploy one of the two again");
            }
        }
    }

    /// Whose each host name is, with some functions as they are going to be.
    ///
    /// # Errors
    /// One that two want.
    fn hosts(&self, changed: &[(&str, &Version)]) -> Result<HashMap<String, String>, Conflict> {
        let mut hosts = HashMap::new();
        for (name, version) in self.main_versions(changed) {
            for host in &version.served.hosts {
                let owner = hosts.entry(host.clone()).or_insert_with(|| name.to_owned());
                if owner != name {
                    let why = format!("the host {host} of {name} belongs to {owner}");
                    return Err(Conflict { name: name.to_owned(), why });
                }
            }
        }
        Ok(hosts)
    }

    /// All routes, with some functions as they are going to be.
    ///
    /// # Errors
    /// The first two that are in each other's way.
    fn table(&self, changed: &[(&str, &Version)]) -> Result<RouteTable, Conflict> {
        let mut table = RouteTable::default();
        for (name, version) in self.main_versions(changed) {
            for (route, text) in version.routes.iter().zip(&version.served.routes) {
                table.add(name, route).map_err(|(other, taken)| {
                    let why = format!("the route {text} of {name} is in the way of {taken} of {other}");
                    Conflict { name: name.to_owned(), why }
                })?;
            }
        }
        Ok(table)
    }
}

impl Deployments {
    /// Those that the store's labels name. What cannot be read any more is left
    /// out, and told to the log.
    ///
    /// # Errors
    /// If the labels cannot be read.
    pub(crate) fn open(
        store: Arc<Store>,
        processes: Arc<Processes>,
        codelets: Arc<Codelets>,
        secrets: Arc<Secrets>,
    ) -> Result<Self, store::Error> {
        let (serving, changing) = (RwLock::default(), Mutex::default());
        let deployments = Self { store, processes, codelets, secrets, serving, changing };
        for (name, labelled) in labels::read(&deployments.store, None)? {
            if labelled.main.is_none() {
                continue;
            }
            let totals = Arc::new(Counts::default());
            let mut function = Function { versions: BTreeMap::new(), aliases: labelled.aliases, totals };
            for (number, (handle, origin)) in labelled.versions {
                match deployments.version(&name, (number, origin), handle, &function.totals) {
                    Ok(version) => _ = function.versions.insert(number, version),
                    Err(reason) => {
                        tracing::error!(name, number, reason, "a version cannot serve; deploy it again");
                    }
                }
            }
            if function.main().is_none() {
                tracing::error!(name, "a function cannot be served; deploy it again");
                continue;
            }
            deployments.serving.write().functions.insert(name, function);
        }
        deployments.route_again();
        deployments.expect_again(None);
        Ok(deployments)
    }

    fn version(
        &self,
        name: &str,
        numbered: (u64, Option<Origin>),
        handle: Handle,
        totals: &Arc<Counts>,
    ) -> Result<Version, String> {
        let deployment = Deployment::read(&self.store, handle)?;
        Ok(Version {
            served: Arc::new(deployment.served(name, numbered, handle, totals.clone())),
            limits: deployment.limits,
            expected: deployment.expected,
            routes: deployment.routes.into(),
            secrets: deployment.secrets.into(),
            steps: Steps::default(),
        })
    }

    /// Makes the table of routes of what serves.
    fn route_again(&self) {
        self.serving.write().route_again();
    }

    /// Tells which procedures are expected to run, and which no more; of one
    /// function, or of all.
    fn expect_again(&self, only: Option<&str>) {
        self.processes.recall_lines(only);
        let serving = self.serving.read();
        let reached = serving.functions.values().flat_map(Function::reached);
        let reached: HashSet<Handle> = reached.map(|version| version.served.procedure).collect();
        let some = serving.functions.iter().filter(|(name, _)| only.is_none_or(|only| only == *name));
        for (version, _) in some.flat_map(|(_, function)| function.by_traffic()) {
            let is_reached = reached.contains(&version.served.procedure);
            for (procedure, expected) in version.procedures() {
                self.processes.expect(procedure, expected);
                if !is_reached {
                    self.processes.retire(procedure);
                }
            }
        }
    }

    /// Has the instances made that functions are to have at least; of one function, or of all. From the moment on that
    /// the node serves.
    pub(crate) fn provide(&self, only: Option<&str>) {
        let serving = self.serving.read();
        let some = serving.functions.iter().filter(|(name, _)| only.is_none_or(|only| only == *name));
        let versions: Vec<_> = some.flat_map(|(_, function)| function.by_traffic()).collect();
        // The same procedure with other limits has instances of its own.
        let spec = |version: &Version| (version.served.procedure, version.limits);
        let last: HashMap<_, _> =
            versions.iter().enumerate().map(|(at, (version, _))| (spec(version), at)).collect();
        for (at, &(version, serves)) in versions.iter().enumerate() {
            if last.get(&spec(version)) == Some(&at) {
                self.processes.provide(version.served.procedure, version.limits, &version.expected, serves);
            }
        }
    }

    /// Has the instances made that a version is to have, before it serves; what served before still has its own. Nothing
    /// is locked meanwhile: what comes of it is for whoever changes labels then.
    fn make_ready(&self, procedure: Handle, limits: Limits, expected: &Expected) {
        self.processes.provide(procedure, limits, expected, true);
        self.processes.await_least(procedure, limits, expected);
    }

    /// The same for versions of a function that is there.
    fn make_versions_ready(&self, name: &str, numbers: &[u64]) {
        let of = |function: &Function| -> Vec<Version> {
            numbers.iter().filter_map(|number| function.versions.get(number).cloned()).collect()
        };
        let versions = self.serving.read().functions.get(name).map(of).unwrap_or_default();
        for version in versions {
            self.make_ready(version.served.procedure, version.limits, &version.expected);
        }
    }

    /// What a function serves when it is rolled back, and whether that is another thing than now.
    fn earlier(&self, name: &str, version: Option<u64>) -> Result<(bool, Traffic), FunctionError> {
        let serving = self.serving.read();
        let function = serving.functions.get(name).ok_or_else(|| unknown(name))?;
        let live = function.live().ok_or_else(|| unknown(name))?;
        let mut numbers = function.versions.keys().rev();
        let found = match version {
            Some(wanted) => numbers.find(|number| **number == wanted),
            None => numbers.find(|number| **number < live.newest()),
        };
        let traffic = Traffic::whole(*found.ok_or_else(|| no_version(name, function))?);
        Ok((traffic != *live, traffic))
    }

    /// Moves an alias of a function, durably, and has it serve so.
    fn switch(&self, name: &str, alias: &str, traffic: Traffic) -> Result<Arc<Served>, FunctionError> {
        let main = {
            let serving = self.serving.read();
            let function = serving.functions.get(name).ok_or_else(|| unknown(name))?;
            let main = function.versions.get(&traffic.main()).ok_or_else(|| unknown(name))?.clone();
            if alias == LIVE {
                serving.table(&[(name, &main)])?;
                serving.hosts(&[(name, &main)])?;
            }
            main
        };
        let deployment = (alias == LIVE).then_some(main.served.deployment);
        labels::set_alias(&self.store, name, alias, &traffic, deployment)?;
        if let Some(function) = self.serving.write().functions.get_mut(name) {
            function.aliases.insert(alias.to_owned(), traffic);
        }
        self.route_again();
        self.expect_again(Some(name));
        self.provide(Some(name));
        Ok(main.served)
    }

    /// Functions some version of which needs a secret, and that an alias names.
    fn users(&self, secret: &str) -> Vec<String> {
        let serving = self.serving.read();
        let needs = |version: &Version| version.secrets.iter().any(|name| name == secret);
        let users = serving.functions.iter().filter(|(_, function)| function.reached().any(needs));
        users.map(|(name, _)| name.clone()).collect()
    }

    /// Has instances made anew that know the old value of a secret.
    fn renew(&self, secret: &str) {
        let serving = self.serving.read();
        let versions = serving.functions.values().flat_map(|function| function.versions.values());
        for version in versions.filter(|version| version.secrets.iter().any(|name| name == secret)) {
            version.procedures().for_each(|(procedure, _)| self.processes.renew(procedure));
        }
    }

    /// Lets go of the oldest versions that no alias names.
    fn prune(&self, name: &str) -> Result<(), FunctionError> {
        let mut serving = self.serving.write();
        let Some(function) = serving.functions.get_mut(name) else { return Ok(()) };
        let more = function.versions.len().saturating_sub(VERSIONS_MAX);
        let idle = |number: &u64| !function.aliases.values().any(|traffic| traffic.has(*number));
        let old: Vec<u64> = function.versions.keys().copied().filter(idle).take(more).collect();
        for version in &old {
            function.versions.remove(version);
        }
        drop(serving);
        for version in old {
            labels::remove_version(&self.store, name, version)?;
        }
        Ok(())
    }
}

fn refused(error: SecretError) -> FunctionError {
    match error {
        SecretError::Invalid(why) => FunctionError::Invalid(why),
        other => FunctionError::Failed(other.to_string()),
    }
}

/// Whether something can be the name of a function.
fn is_name(name: &str) -> bool {
    name.len() <= NAME_LEN_MAX
        && name.starts_with(|first: char| first.is_ascii_lowercase())
        && name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-')
}

fn unknown(name: &str) -> FunctionError {
    FunctionError::NotFound(format!("there is no function {name:?}"))
}

fn no_version(name: &str, function: &Function) -> FunctionError {
    let kept: Vec<String> = function.versions.keys().rev().map(u64::to_string).collect();
    FunctionError::NotFound(format!("{name:?} has no such version; it has {}", kept.join(", ")))
}

fn texts(pairs: &Pairs) -> Vec<(String, String)> {
    pairs.iter().map(|(name, value)| (name.to_owned(), String::from_utf8_lossy(value).into_owned())).collect()
}

impl Functions for Deployments {
    fn interpreter(&self, runtime: &str) -> Result<Interpreter, FunctionError> {
        let interpreted = Language::of_runtime(runtime).filter(|found| Language::INTERPRETED.contains(found));
        let language = interpreted.ok_or_else(|| {
            FunctionError::NotFound(format!("functions of the runtime {runtime:?} have no interpreter"))
        })?;
        let told = self.processes.interpreter(language).map_err(|why| {
            FunctionError::Failed(format!("{} functions cannot run here: {why}", language.name()))
        })?;
        let program = told.program.to_string_lossy().into_owned();
        Ok(Interpreter { program, version: told.version, abi: told.abi })
    }

    fn has_place(&self, served: &Served) -> bool {
        self.processes.has_place(served.procedure)
    }

    fn step(&self, workflow: &Served, settings: &StepSettings) -> Result<Arc<Served>, FunctionError> {
        self.step_of(workflow, settings)
    }

    fn served(&self, name: &str, qualifier: Option<&str>, lot: u32) -> Option<Arc<Served>> {
        let serving = self.serving.read();
        let version = serving.functions.get(name)?.version_of(qualifier, lot)?;
        Some(version.served.clone())
    }

    fn all(&self) -> Vec<Arc<Served>> {
        let serving = self.serving.read();
        serving.functions.values().filter_map(|function| Some(function.main()?.served.clone())).collect()
    }

    fn versions(&self) -> Vec<Arc<Served>> {
        let serving = self.serving.read();
        let all = serving.functions.values().flat_map(|function| function.versions.values());
        all.map(|version| version.served.clone()).collect()
    }

    fn route(&self, method: &str, path: &str) -> Result<Routed, RouteError> {
        self.serving.read().routes.find(method, path)
    }

    fn is_public(&self, name: &str, qualifier: Option<&str>) -> bool {
        let serving = self.serving.read();
        let Some(function) = serving.functions.get(name) else { return false };
        let is_public = |qualifier| {
            let versions = function.versions_of(qualifier);
            !versions.is_empty() && versions.iter().all(|version| version.served.is_public)
        };
        // What is no longer public has versions that once were.
        is_public(qualifier) && is_public(None)
    }

    fn hosted(&self, host: &str) -> Option<String> {
        let serving = self.serving.read();
        match host.strip_suffix(".localhost") {
            Some(name) => serving.functions.contains_key(name).then(|| name.to_owned()),
            None => serving.hosts.get(host).cloned(),
        }
    }

    fn instances(&self, served: &Served) -> Instances {
        self.processes.instances(served)
    }

    fn egress(&self, served: &Served) -> Option<EgressCounts> {
        self.processes.egress(served)
    }

    fn intake(&self, application: Handle) -> Option<Box<dyn gateway::Intake>> {
        Some(Box::new(self.processes.intake(application)))
    }

    fn follow(
        &self,
        application: Handle,
        followers: Vec<gateway::Follower>,
    ) -> Option<Arc<dyn gateway::Following>> {
        Some(self.processes.follow(application, followers))
    }

    fn printing(&self, is_wanted: &mut dyn FnMut(&[u8], gateway::SoFar) -> bool) -> Vec<gateway::Printing> {
        self.processes.printing(is_wanted)
    }

    fn take_report(&self, application: Handle) -> Option<CallReport> {
        self.processes.take_report(application)
    }

    fn details(&self, name: &str) -> Result<Details, FunctionError> {
        let serving = self.serving.read();
        let function = serving.functions.get(name).ok_or_else(|| unknown(name))?;
        let served = function.main().ok_or_else(|| unknown(name))?.served.clone();
        let versions = function.versions.values().rev().map(|version| version.served.clone()).collect();
        let aliases = function.aliases.iter();
        let aliases = aliases.map(|(alias, traffic)| (alias.clone(), traffic.shares().to_vec())).collect();
        drop(serving);
        let deployment = Deployment::read(&self.store, served.deployment).map_err(FunctionError::Invalid)?;
        let (settings, serving) = (texts(&deployment.settings), texts(&deployment.serving));
        Ok(Details { served, versions, aliases, settings, serving })
    }

    fn claims(&self, name: &str, deployment: Handle) -> Result<Vec<String>, FunctionError> {
        let read = Deployment::read(&self.store, deployment).map_err(FunctionError::Invalid)?;
        let serving = self.serving.read();
        let versions = serving.functions.get(name).map(|function| &function.versions);
        let versions = || versions.into_iter().flat_map(BTreeMap::values);
        let is_known =
            |host: &String| versions().any(|version| version.served.hosts.iter().any(|known| known == host));
        Ok(read.hosts().iter().filter(|host| !is_known(host)).cloned().collect())
    }

    fn deploy_all(
        &self,
        wanted: &[(String, Handle)],
        serves: bool,
        note: &str,
    ) -> Result<Vec<Deployed>, NotDeployed> {
        self.deploy_together(wanted, serves, note)
    }

    fn roll_back(&self, name: &str, version: Option<u64>) -> Result<Deployed, FunctionError> {
        let earlier = self.earlier(name, version)?.1;
        self.make_versions_ready(name, &[earlier.main()]);
        let _changing = self.changing.lock();
        let switched = self.earlier(name, version).and_then(|(is_changed, traffic)| {
            let served = self.switch(name, LIVE, traffic)?;
            Ok(Deployed { served, is_changed, loading: Duration::ZERO })
        });
        // Where it failed, nothing serves that was made ready.
        switched.inspect_err(|_| self.provide(Some(name)))
    }

    fn set_alias(&self, name: &str, alias: &str, shares: &[(u64, u32)]) -> Result<(), FunctionError> {
        if !is_alias(alias) {
            let why =
                format!("{alias:?} is no name for an alias: 1 to 32 of a-z 0-9 -, beginning with a letter");
            return Err(FunctionError::Invalid(why));
        }
        let traffic = Traffic::new(shares).map_err(FunctionError::Invalid)?;
        if alias == LIVE {
            let numbers: Vec<u64> = shares.iter().map(|(number, _)| *number).collect();
            self.make_versions_ready(name, &numbers);
        }
        let _changing = self.changing.lock();
        {
            let serving = self.serving.read();
            let function = serving.functions.get(name).ok_or_else(|| unknown(name))?;
            if !shares.iter().all(|(version, _)| function.versions.contains_key(version)) {
                return Err(no_version(name, function));
            }
            if function.aliases.len() >= ALIASES_MAX && !function.aliases.contains_key(alias) {
                return Err(FunctionError::Invalid(format!("a function has at most {ALIASES_MAX} aliases")));
            }
        }
        self.switch(name, alias, traffic).map(drop).inspect_err(|_| self.provide(Some(name)))
    }

    fn remove_alias(&self, name: &str, alias: &str) -> Result<(), FunctionError> {
        let _changing = self.changing.lock();
        if alias == LIVE {
            let why = "live is what serves: delete the function, or give the alias other versions";
            return Err(FunctionError::Invalid(why.to_owned()));
        }
        let known = |function: &Function| function.aliases.contains_key(alias);
        if !self.serving.read().functions.get(name).ok_or_else(|| unknown(name)).map(known)? {
            return Err(FunctionError::NotFound(format!("{name:?} has no alias {alias:?}")));
        }
        labels::remove_alias(&self.store, name, alias)?;
        if let Some(function) = self.serving.write().functions.get_mut(name) {
            function.aliases.remove(alias);
        }
        self.expect_again(Some(name));
        Ok(())
    }

    fn secrets(&self) -> Vec<(String, Vec<String>)> {
        let names = self.secrets.names().into_iter();
        names.map(|name| (self.users(&name), name)).map(|(users, name)| (name, users)).collect()
    }

    fn set_secret(&self, name: &str, value: &str) -> Result<bool, FunctionError> {
        let is_changed = self.secrets.set(name, value).map_err(refused)?;
        if is_changed {
            self.renew(name);
        }
        Ok(is_changed)
    }

    fn remove_secret(&self, name: &str) -> Result<(), FunctionError> {
        // No deployment that needs it may come meanwhile.
        let _changing = self.changing.lock();
        let users = self.users(name);
        if !users.is_empty() {
            let why = format!("the secret {name} is needed by {}: deploy it without first", users.join(", "));
            return Err(FunctionError::Invalid(why));
        }
        match self.secrets.remove(name).map_err(refused)? {
            true => Ok(()),
            false => Err(FunctionError::NotFound(format!("there is no secret {name:?}"))),
        }
    }

    fn remove(&self, name: &str) -> Result<(), FunctionError> {
        let _changing = self.changing.lock();
        if !self.serving.read().functions.contains_key(name) {
            return Err(unknown(name));
        }
        labels::remove(&self.store, name)?;
        let removed = self.serving.write().functions.remove(name);
        self.route_again();
        let serving = self.serving.read();
        let reached = serving.functions.values().flat_map(Function::reached);
        let reached: HashSet<Handle> = reached.map(|version| version.served.procedure).collect();
        for version in removed.iter().flat_map(|function| function.versions.values()) {
            if !reached.contains(&version.served.procedure) {
                version.procedures().for_each(|(procedure, _)| self.processes.retire(procedure));
            }
        }
        Ok(())
    }
}

/// By its settings a function is told from others, which must not see what it is sent: nobody
/// says another one's name there.
fn check_own_name(deployment: &Deployment, name: &str) -> Result<(), String> {
    match deployment.settings.get("function") {
        Some(own) if own != name.as_bytes() => Err(format!(
            "its settings say that it is the function {:?}, and it is deployed as {name:?}: make one with this name",
            String::from_utf8_lossy(own)
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests;
