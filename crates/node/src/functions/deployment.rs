// SPDX-License-Identifier: Apache-2.0
//! Reading deployments (`docs/spec/functions.md`, section 4).

use std::sync::Arc;
use std::time::Duration;

use axum::http::HeaderValue;
use gateway::{Counts, Declaration, Origin, Served, Tool, VersionCounts};
use objects::{Handle, Limits, Pairs, TreeBuilder, TreeView};
use queue::{Policy, Schedule};
use sandbox::process::{Image, Language, Part, Settings};
use store::{Object, Store};

use super::routes::Route;
use super::{declared, module, tool};
use crate::outbound;
use crate::processes::Expected;

/// What the first entry of a deployment says.
const MARK: &[u8] = b"sinew:function/1";

/// A deployment, taken apart and checked.
#[derive(Debug)]
pub(crate) struct Deployment {
    /// `python`, `node`, `executable`, `wasm` or `workflow`.
    pub(crate) runtime: String,
    /// The procedure.
    pub(crate) procedure: Handle,
    /// The entries of an application, up to those of a request.
    prefix: Vec<Handle>,
    pub(crate) limits: Limits,
    timeout: Duration,
    pub(crate) settings: Pairs,
    pub(crate) serving: Pairs,
    /// What instances it may have.
    pub(crate) expected: Expected,
    /// Paths that are its own.
    pub(crate) routes: Vec<Route>,
    route_texts: Vec<String>,
    /// Names of secrets that it needs.
    pub(crate) secrets: Vec<String>,
    /// A module that is a whole program.
    is_program: bool,
    is_workflow: bool,
    maps_values: bool,
    declaration: Option<Arc<Declaration>>,
    /// What answers of a module are.
    content_type: Option<HeaderValue>,
    is_pure: bool,
    is_idempotent: bool,
    is_public: bool,
    hosts: Vec<String>,
    delivery: Policy,
    schedules: Vec<Schedule>,
    tool: Option<Arc<Tool>>,
}

impl Deployment {
    /// Reads and checks all of a deployment but its code's files.
    ///
    /// # Errors
    /// What is wrong with it, for people.
    pub(crate) fn read(store: &Store, handle: Handle) -> Result<Self, String> {
        let data = tree(store, handle)?;
        let entries: Vec<Handle> = TreeView::from_checked(&data).iter().take(5).collect();
        let &[mark, procedure, limits, serving] = entries.as_slice() else {
            return Err("it is not [mark, procedure, limits, serving]".to_owned());
        };
        if mark.literal_bytes() != Some(MARK) {
            return Err("its first entry is not sinew:function/1".to_owned());
        }
        let limits_value = Limits::from_handle(limits).map_err(|error| error.to_string())?;
        let serving = pairs(store, serving)?;
        let run = Run::read(store, procedure, limits_value, &serving)?;
        let expected = run.expected(&serving)?;
        let Run { runtime, procedure, told, is_program, declaration, pairs: settings, settings: run, .. } =
            run;
        let prefix = [limits].into_iter().chain(told).collect();
        let maps_values = run.hands_memory_over();
        let Settings { timeout, streams_body, takes_http_event, secrets, part, .. } = run;
        let is_workflow = part == Some(Part::Workflow);
        let route_texts = texts_of(&serving, "route.");
        let content_type = module::content_type(&serving)?;
        let routes = route_texts.iter().map(|text| Route::read(text)).collect::<Result<Vec<_>, _>>()?;
        let is_pure = serving.get("pure") == Some(b"true");
        let is_idempotent = serving.get("idempotent") == Some(b"true");
        check_together(part, streams_body, is_pure, is_idempotent)?;
        if takes_http_event && is_pure {
            return Err(
                "what is pure is told its body and nothing else: leave \"pure\" or \"event\" out".to_owned()
            );
        }
        if maps_values && is_pure {
            return Err(
                "memory cannot be remembered, which what is pure is: leave \"pure\" or \"values\" out"
                    .to_owned(),
            );
        }
        let (hosts, is_public) = (hosts(&serving)?, serving.get("public") == Some(b"true"));
        let delivery = delivery(&serving, is_workflow)?;
        let schedules = texts_of(&serving, "schedule.").into_iter().map(|text| Schedule::parse(&text));
        let schedules = schedules.collect::<Result<Vec<_>, _>>()?;
        let tool = tool::read(&serving)?.map(Arc::new);
        let limits = limits_value;
        Ok(Self {
            runtime,
            procedure,
            prefix,
            limits,
            timeout,
            settings,
            serving,
            expected,
            routes,
            route_texts,
            secrets: secrets.into_values().collect(),
            is_program,
            is_workflow,
            maps_values,
            declaration,
            content_type,
            is_pure,
            is_idempotent,
            is_public,
            hosts,
            delivery,
            schedules,
            tool,
        })
    }

    /// Host names that are to be its own.
    pub(crate) fn hosts(&self) -> &[String] {
        &self.hosts
    }

    /// Whether it is a workflow without code of its own.
    pub(crate) fn is_declared(&self) -> bool {
        self.declaration.is_some()
    }

    /// What the gateway needs of it.
    pub(crate) fn served(
        &self,
        name: &str,
        (version, origin): (u64, Option<Origin>),
        deployment: Handle,
        totals: Arc<Counts>,
    ) -> Served {
        let is_codelet = self.runtime == "wasm";
        Served {
            name: name.to_owned(),
            version,
            deployment,
            runtime: self.runtime.clone(),
            procedure: self.procedure,
            prefix: self.prefix.clone(),
            is_codelet,
            is_program: self.is_program,
            is_workflow: self.is_workflow,
            maps_values: self.maps_values,
            declaration: self.declaration.clone(),
            content_type: self.content_type.clone(),
            is_pure: self.is_pure || is_codelet,
            streams_body: self.expected.streams_body,
            timeout: self.timeout,
            memory_bytes: if self.is_declared() { 0 } else { self.limits.memory_bytes },
            calls_at_once: self.expected.calls_at_once,
            concurrency: self.expected.concurrency,
            // What is pure ends the same way again.
            is_idempotent: self.is_idempotent && !self.is_pure && !is_codelet,
            delivery: self.delivery,
            schedules: self.schedules.clone(),
            routes: self.route_texts.clone(),
            hosts: self.hosts.clone(),
            is_public: self.is_public,
            tool: self.tool.clone(),
            origin,
            counts: totals,
            version_counts: VersionCounts::default(),
        }
    }
}

/// How a deployment's procedure is run.
struct Run {
    runtime: String,
    procedure: Handle,
    /// The entries of an application between its limits and those of the request.
    told: Vec<Handle>,
    is_program: bool,
    declaration: Option<Arc<Declaration>>,
    /// Its settings as they are written, and what they say.
    pairs: Pairs,
    settings: Settings,
    /// What it has in common with those that may be called within its instances.
    together: Option<Handle>,
}

impl Run {
    /// Takes a procedure apart, of whatever kind it is.
    fn read(store: &Store, procedure: Handle, limits: Limits, serving: &Pairs) -> Result<Self, String> {
        let plain = |runtime: &str, told: Vec<Handle>| -> Result<Self, String> {
            let (runtime, settings) = (runtime.to_owned(), module::settings(serving)?);
            let (pairs, is_program, declaration) = (Pairs::default(), false, None);
            Ok(Self { runtime, procedure, told, is_program, declaration, pairs, settings, together: None })
        };
        if let Some(module) = module::read(store, procedure, limits)? {
            let run = plain("wasm", module.prefix)?;
            return Ok(Self { procedure: module.module, is_program: module.is_program, ..run });
        }
        if let Some(declaration) = declared::read(store, procedure)? {
            let mut run = plain("workflow", vec![procedure])?;
            run.settings.part = Some(Part::Workflow);
            return Ok(Self { declaration: Some(declaration), ..run });
        }
        process(store, procedure)
    }

    /// How it is expected to run.
    fn expected(&self, serving: &Pairs) -> Result<Expected, String> {
        let Settings { timeout, calls_at_once, streams_body, .. } = self.settings;
        // What serves several begins them at once; and what comes for a call that stands in line would
        // come between the frames of others.
        let is_serial = calls_at_once == 1 && !streams_body;
        let ahead = Language::of_runtime(&self.runtime).filter(|_| is_serial);
        Ok(Expected {
            calls_at_once: calls_at_once.into(),
            ahead: ahead.map_or(0, Language::calls_ahead),
            streams_body,
            timeout: Some(timeout),
            together: self.together,
            ..check_serving(serving, &self.runtime)?
        })
    }
}

/// How a procedure is run that is one of a process: as a tree with refs for its files.
fn process(store: &Store, procedure: Handle) -> Result<Run, String> {
    let data = tree(store, procedure)?;
    let view = TreeView::from_checked(&data);
    let image = Image::read(store, view).map_err(|fault| fault.detail)?;
    outbound::allow_list(&image.settings.allow_hosts)?;
    if Language::of_runtime(&image.runtime).is_none() {
        let named = &image.runtime;
        return Err(format!("no runtime {named:?} here, but python, node, executable and wasm"));
    }
    let settings = view.get(3).ok_or("the procedure has no settings")?;
    // Refs: the runtime reads them itself, when an instance is made. As
    // objects they would be brought, all files of them, for each call.
    let refs: TreeBuilder = view.iter().map(|entry| entry.lowered().unwrap_or(entry)).collect();
    let together = image.together();
    Ok(Run {
        runtime: image.runtime,
        procedure: store.put_tree(refs.view()).map_err(|error| error.to_string())?,
        told: refs.view().iter().collect(),
        is_program: false,
        declaration: None,
        pairs: pairs(store, settings)?,
        settings: image.settings,
        together,
    })
}

pub(super) fn tree(store: &Store, handle: Handle) -> Result<Object, String> {
    if !handle.is_object() || !handle.names_tree() {
        return Err(format!("{handle} is no tree"));
    }
    let found = store.get(handle).map_err(|error| error.to_string())?;
    found.ok_or_else(|| format!("{handle} is not on this node; put it first"))
}

fn pairs(store: &Store, handle: Handle) -> Result<Pairs, String> {
    let data = tree(store, handle)?;
    let blob = |handle: Handle| {
        let is_blob = handle.is_object() && !handle.names_tree();
        store.get(handle).ok().flatten().filter(|_| is_blob)
    };
    Pairs::read(TreeView::from_checked(&data), blob).map_err(|error| error.to_string())
}

/// Values of names with this prefix and a number, in the order of the numbers.
fn texts_of(serving: &Pairs, prefix: &str) -> Vec<String> {
    let numbered = serving.iter().filter_map(|(name, value)| {
        let number: u64 = name.strip_prefix(prefix)?.parse().ok()?;
        Some((number, String::from_utf8_lossy(value).into_owned()))
    });
    let mut numbered: Vec<(u64, String)> = numbered.collect();
    numbered.sort_unstable();
    numbered.into_iter().map(|(_, text)| text).collect()
}

/// Host names of one function.
const HOSTS_MAX: u16 = 16;
/// Of a host name that is a function's own.
const HOST_LEN_MAX: usize = 253;

/// Host names that are its own.
fn hosts(serving: &Pairs) -> Result<Vec<String>, String> {
    let hosts = texts_of(serving, "host.");
    hosts.iter().try_for_each(|host| check_host(host))?;
    Ok(hosts)
}

/// Whether a function may have this host name: one of the domain name system, in lower case, and none of those
/// that mean this machine.
fn check_host(host: &str) -> Result<(), String> {
    let bad = |why: &str| Err(format!("{host:?} is no host name of a function's own: {why}"));
    let is_label = |label: &str| {
        let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        (1..=63).contains(&label.len())
            && label.bytes().all(plain)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    if host.len() > HOST_LEN_MAX || !host.split('.').all(is_label) {
        return bad("write it as shop.example.org, in lower case, without a port");
    }
    let last = host.rsplit('.').next().unwrap_or_default();
    match last.bytes().all(|byte| byte.is_ascii_digit()) {
        true => bad("it is an address"),
        // Each function has one there already, by its own name.
        false if last == "localhost" => bad("names that end in localhost are this machine's"),
        false => Ok(()),
    }
}

/// What is said of calls that are made later: a name, the least and the most.
const ASYNC: [(&str, u64, u64); 4] = [
    ("async.max-attempts", 1, 100),
    ("async.max-age-ms", 1, 14 * 86_400_000),
    ("async.min-backoff-ms", 1, 86_400_000),
    ("async.max-backoff-ms", 1, 86_400_000),
];

/// How calls that are made later are tried.
fn delivery(serving: &Pairs, is_workflow: bool) -> Result<Policy, String> {
    let mut policy = Policy::default();
    if is_workflow {
        // Those that fail are over; these are the ends of the node that a run survives.
        (policy.max_attempts, policy.max_age_ms) = (100, 14 * 86_400_000);
    }
    for (name, least, most) in ASYNC {
        let Some(value) = serving.get(name) else { continue };
        let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
        let number = number.filter(|number| (least..=most).contains(number));
        let number = number.ok_or_else(|| format!("{name} is not a number from {least} to {most}"))?;
        match name {
            "async.max-attempts" => policy.max_attempts = u32::try_from(number).unwrap_or(u32::MAX),
            "async.max-age-ms" => policy.max_age_ms = number,
            "async.min-backoff-ms" => policy.min_backoff_ms = number,
            _ => policy.max_backoff_ms = number,
        }
    }
    if policy.min_backoff_ms > policy.max_backoff_ms {
        return Err("async.min-backoff-ms is more than async.max-backoff-ms".to_owned());
    }
    Ok(policy)
}

/// Checks what is said of a function against the rest of it.
fn check_together(
    part: Option<Part>,
    streams_body: bool,
    is_pure: bool,
    is_idempotent: bool,
) -> Result<(), String> {
    let why = match part {
        Some(Part::Step) => "a step is made by its workflow: leave \"part\" out",
        Some(Part::Workflow) if is_pure || is_idempotent || streams_body => {
            "a workflow's steps are pure or not, and are made again or not: leave \"pure\", \"idempotent\" and \"body\" out"
        }
        None if streams_body && (is_pure || is_idempotent) => {
            "a body that is passed on while it comes is there once: leave \"pure\" and \"idempotent\", or \"body\", out"
        }
        _ => return Ok(()),
    };
    Err(why.to_owned())
}

/// Schedules of one function.
const SCHEDULES_MAX: u16 = 16;

fn is_numbered(name: &str, prefix: &str, most: u16) -> bool {
    name.strip_prefix(prefix).and_then(|number| number.parse().ok()).is_some_and(|number: u16| number <= most)
}

/// Checks what is said of how requests reach it.
fn check_serving(serving: &Pairs, runtime: &str) -> Result<Expected, String> {
    let mut expected = Expected::default();
    for (name, value) in serving.iter() {
        let text = std::str::from_utf8(value).map_err(|_| format!("{name} is not UTF-8"))?;
        let number = |least: u64, most: u64| {
            let number = text.parse().ok().filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| format!("{name} is {text:?}, not a number from {least} to {most}"))
        };
        match name {
            "concurrency" => expected.concurrency = u32::try_from(number(1, 1000)?).unwrap_or(u32::MAX),
            "min-instances" if !["wasm", "workflow"].contains(&runtime) => {
                expected.least = u32::try_from(number(0, 1000)?).unwrap_or(u32::MAX);
            }
            "waiting" => expected.waiting = u32::try_from(number(0, 100_000)?).unwrap_or(u32::MAX),
            "idle-ms" => expected.idle = Some(Duration::from_millis(number(0, 1 << 40)?)),
            "pure" | "idempotent" | "public" if !["true", "false"].contains(&text) => {
                return Err(format!("{name} is {text:?}, not true or false"));
            }
            "pure" | "idempotent" | "public" => {}
            "runtime" if text == runtime => {}
            "runtime" => {
                return Err(format!("it says runtime {text:?}, and its procedure is for {runtime:?}"));
            }
            // It is read by itself.
            "tool" => {}
            "timeout-ms" | "content-type" if runtime == "wasm" => {}
            "timeout-ms" if runtime == "workflow" => {}
            _ if ASYNC.iter().any(|(known, ..)| *known == name) => {}
            _ if is_numbered(name, "route.", u16::MAX)
                || is_numbered(name, "host.", HOSTS_MAX - 1)
                || is_numbered(name, "schedule.", SCHEDULES_MAX - 1) => {}
            _ => return Err(format!("{name:?} means nothing in a deployment")),
        }
    }
    let Expected { least, concurrency, .. } = expected;
    if least > concurrency {
        return Err(format!("min-instances is {least}, and concurrency allows {concurrency} instances"));
    }
    Ok(expected)
}
