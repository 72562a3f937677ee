// SPDX-License-Identifier: Apache-2.0
//! What a function is made of, as data: runtime, code, layers and settings
//! (`docs/spec/functions.md`, section 3).

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use objects::{FailureCode, Handle, Limits, Pairs, TreeView};
use store::{Object, Store};

use super::language::Language;
use super::secrets::SecretSource;
use super::{debugger, outbound, threads};
use crate::Fault;

/// What the name of every runtime begins with.
const RUNTIME_PREFIX: &[u8] = b"sinew:";
/// Directories beside the code.
pub(super) const LAYERS_MAX: usize = 16;
/// Bytes of a function's name.
const NAME_LEN_MAX: usize = 128;
/// Bytes of the list of hosts that a function may reach.
const HOSTS_BYTES_MAX: usize = 16 << 10;
/// Modules that a template loads for a function, and characters of each.
pub const IMPORTS_MAX: usize = 32;
const MODULE_LEN_MAX: usize = 128;
/// A slower disk would keep an interpreter from its own libraries for minutes.
const DISK_RATE_MIN: u64 = 64 << 10;
/// The value of `body` where bodies are passed on while they come.
const STREAM: &str = "stream";
/// The event of a function that is a request by HTTP.
const HTTP_EVENT: &str = "http";
/// The mode of an executable that asks for its events.
const LAMBDA: &str = "lambda";
/// The mode of an executable that speaks the channel itself.
const NATIVE: &str = "native";
/// The values of `values`: they are mapped, or sent.
const MAP: &str = "map";
const SEND: &str = "send";
/// Entries of an image.
const ENTRIES: usize = 4;

/// A function in a process sandbox, as its procedure describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    /// Without its prefix: `python`, `node`.
    pub runtime: String,
    /// A directory tree.
    pub code: Handle,
    /// Directory trees.
    pub layers: Vec<Handle>,
    /// How it is run.
    pub settings: Settings,
}

/// What a function is in a workflow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The workflow itself: its calls of its functions are steps.
    Workflow,
    /// One of its functions: it is given values, and gives one.
    Step,
}

impl Part {
    fn word(self) -> &'static str {
        match self {
            Self::Workflow => "workflow",
            Self::Step => "step",
        }
    }
}

/// What a function's procedure says about how to run it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Its name; empty if it has none.
    pub function: String,
    /// `module.name`, or the path of an executable; `None`: the runtime's usual one.
    pub handler: Option<String>,
    /// How an executable is asked, `http`, `stdin`, `lambda` or `native`; `None` for all others.
    pub mode: Option<String>,
    /// What it is in a workflow, if it is in one.
    pub part: Option<Part>,
    /// What its steps make is mapped by those that are given it, and not sent.
    pub maps_values: bool,
    /// Of one call.
    pub timeout: Duration,
    /// Of one processor.
    pub cpu_percent: u32,
    /// Calls that one instance serves at the same time.
    pub calls_at_once: u16,
    /// Bodies of requests are passed to it while they come.
    pub streams_body: bool,
    /// Its event is the request by HTTP, as Amazon's gateways describe it, and not the body.
    pub takes_http_event: bool,
    /// Room in `/tmp`.
    pub tmp_bytes: u64,
    /// Hosts that it may reach, as they were written.
    pub allow_hosts: Vec<String>,
    /// The group of functions that it may be called by, and may call, within one instance.
    pub together: Option<String>,
    /// Bytes a second that it may read from each disk; and as many written.
    pub disk_bytes_per_s: Option<u64>,
    /// Modules of the node's own interpreter that are loaded before it is
    /// forked, by a template that is for those.
    pub imports: Vec<String>,
    /// Variables of the environment.
    pub environment: BTreeMap<String, String>,
    /// Variables whose values are secrets, and how these are called.
    pub secrets: BTreeMap<String, String>,
}

impl Settings {
    /// The function whose packages may see what this one is sent, and which it may see what is sent to: a step is its
    /// workflow's, behind whose name, and a dot, it has its own.
    pub fn owner(&self) -> &str {
        let of_workflow = self.function.rsplit_once('.').filter(|_| self.part == Some(Part::Step));
        of_workflow.map_or(&self.function, |(workflow, _)| workflow)
    }

    /// Whether it is a native function that makes what others map, and maps what they make.
    pub fn hands_memory_over(&self) -> bool {
        self.maps_values && self.part.is_none()
    }
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            function: String::new(),
            handler: None,
            mode: None,
            part: None,
            maps_values: false,
            timeout: Duration::from_secs(60),
            cpu_percent: 100,
            calls_at_once: 1,
            streams_body: false,
            takes_http_event: false,
            tmp_bytes: 16 << 20,
            allow_hosts: Vec::new(),
            together: None,
            disk_bytes_per_s: None,
            imports: Vec::new(),
            environment: BTreeMap::new(),
            secrets: BTreeMap::new(),
        }
    }
}

fn bad(why: impl Into<String>) -> Fault {
    Fault::new(FailureCode::BadProcedure, why.into())
}

/// The runtime that a procedure's literal names, if it names any.
pub fn runtime_of(procedure: &Handle) -> Option<&str> {
    let name = procedure.literal_bytes().filter(|_| procedure.is_object())?.strip_prefix(RUNTIME_PREFIX)?;
    std::str::from_utf8(name).ok()
}

impl Image {
    /// Whether it calls, and is called by, others on lines: its adapter speaks them, or it does
    /// so itself. In Python only where it serves one request at a time.
    pub fn speaks_lines(&self) -> bool {
        match Language::of_runtime(&self.runtime) {
            Some(Language::Python) => self.settings.calls_at_once == 1,
            Some(Language::Executable) => self.settings.mode.as_deref() == Some(NATIVE),
            _ => true,
        }
    }

    /// What functions have in common that may be called within an instance of one another: the group, and all
    /// that a process is: the code, and what it may see and reach. `None`: it is called within no other one.
    pub fn together(&self) -> Option<Handle> {
        let Settings { together, environment, secrets, allow_hosts, calls_at_once, .. } = &self.settings;
        let takes_http = if self.settings.takes_http_event { HTTP_EVENT } else { "" };
        let is_asked_at_once = *calls_at_once > 1 && self.runtime == Language::Python.runtime();
        let group = together.as_deref().filter(|_| !is_asked_at_once)?;
        let Self { runtime, code, layers, .. } = self;
        let text = format!(
            "{group:?} {runtime} {code} {layers:?} {environment:?} {secrets:?} {allow_hosts:?}{takes_http}"
        );
        Some(Handle::blob(text.as_bytes()))
    }

    /// Whether it is lent memory for what it makes.
    pub(super) fn makes_values(&self) -> bool {
        self.settings.part == Some(Part::Step) || self.settings.hands_memory_over()
    }

    /// Reads an image, the entries of a procedure's tree.
    ///
    /// # Errors
    /// `bad-procedure` if it breaks the specification, `missing-data` if the
    /// lists that it consists of are not on this node.
    pub fn read(store: &Store, tree: TreeView<'_>) -> Result<Self, Fault> {
        let entries: Vec<Handle> = tree.iter().take(ENTRIES + 1).collect();
        let &[runtime, code, layers, settings] = entries.as_slice() else {
            return Err(bad("a function is [runtime, code, layers, settings]"));
        };
        let runtime =
            runtime_of(&runtime).ok_or_else(|| bad("a function's first entry names no runtime"))?.to_owned();
        let layers: Vec<Handle> = TreeView::from_checked(&object(store, layers)?).iter().collect();
        if code.is_thunk() || code.is_encode() || !code.names_tree() {
            return Err(bad("a function's code is a tree"));
        }
        if layers.len() > LAYERS_MAX {
            return Err(bad(format!("a function has {} layers; at most {LAYERS_MAX}", layers.len())));
        }
        let settings = object(store, settings)?;
        let pairs = Pairs::read(TreeView::from_checked(&settings), |handle| {
            let is_blob = handle.is_object() && !handle.names_tree();
            store.get(handle).ok().flatten().filter(|_| is_blob)
        });
        let pairs = pairs.map_err(|error| bad(format!("a function's settings: {error}")))?;
        let settings = Settings::read(&pairs)?;
        settings.check(&runtime)?;
        Ok(Self { runtime, code, layers, settings })
    }

    /// What an executable's adapter is loaded with.
    ///
    /// # Errors
    /// `resources` if a secret is not set.
    pub(super) fn executable_source(
        &self,
        limits: Limits,
        secrets: Option<&dyn SecretSource>,
    ) -> Result<Vec<u8>, Fault> {
        let Settings { handler, mode, function, .. } = &self.settings;
        let memory_mib = (limits.memory_bytes >> 20).to_string();
        let event = self.settings.takes_http_event.then_some(HTTP_EVENT);
        let own = [
            ("handler", handler.as_deref()),
            ("mode", mode.as_deref()),
            ("event", event),
            ("function", Some(function.as_str())),
            ("memory-mib", Some(memory_mib.as_str())),
        ];
        let own = own.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let variables = self.variables(secrets)?;
        let variables = variables.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        Ok(adapter::Settings::encode(own.chain(variables)))
    }

    /// The variables of the environment, secrets included, as `env.NAME`. What is said by the function goes before what
    /// is said to all.
    fn variables(&self, secrets: Option<&dyn SecretSource>) -> Result<Vec<(String, String)>, Fault> {
        let plain = self.settings.environment.iter();
        let mut all: Vec<(String, String)> =
            plain.map(|(name, value)| (format!("env.{name}"), value.clone())).collect();
        let has_proxy = !self.settings.allow_hosts.is_empty();
        let proxy = outbound::variables().filter(|_| has_proxy);
        let bounds = threads::variables(&self.runtime, self.settings.cpu_percent, *threads::PROCESSORS);
        for (name, value) in proxy.chain(bounds) {
            if !self.settings.environment.contains_key(name) && !self.settings.secrets.contains_key(name) {
                all.push((format!("env.{name}"), value));
            }
        }
        for (variable, name) in &self.settings.secrets {
            let value = secrets.and_then(|secrets| secrets.secret(name));
            let value = value.ok_or_else(|| {
                let why = format!("the secret {name} is not set on this node: `sinew secret set {name}`");
                Fault::new(FailureCode::Resources, why)
            })?;
            all.push((format!("env.{variable}"), value));
        }
        Ok(all)
    }

    /// A line of source that says to a runtime's adapter what the function is:
    /// an object of strings, in a form that Python and JavaScript share.
    /// Secrets are looked up now, and are nowhere but in the line.
    ///
    /// # Errors
    /// `resources` if one is not set.
    pub(super) fn settings_line(
        &self,
        limits: Limits,
        secrets: Option<&dyn SecretSource>,
        is_debugged: bool,
    ) -> Result<String, Fault> {
        let mut line = String::from("SETTINGS = {");
        let mut add = |name: &str, value: &str| {
            push_quoted(&mut line, name);
            line.push(':');
            push_quoted(&mut line, value);
            line.push(',');
        };
        if let Some(handler) = &self.settings.handler {
            add("handler", handler);
        }
        add("layers", &self.layers.len().to_string());
        if !self.settings.allow_hosts.is_empty() {
            add("proxy", &outbound::PROXY_PORT.to_string());
        }
        if is_debugged {
            add("debugger", &debugger::DEBUGGER_PORT.to_string());
        }
        add("memory-bytes", &limits.memory_bytes.to_string());
        if self.settings.streams_body {
            add("body", STREAM);
        }
        if self.settings.takes_http_event {
            add("event", HTTP_EVENT);
        }
        if let Some(group) = &self.settings.together {
            add("together", group);
        }
        if self.settings.calls_at_once > 1 {
            add("requests-per-instance", &self.settings.calls_at_once.to_string());
        }
        if let Some(part) = self.settings.part {
            add("part", part.word());
        }
        add("timeout-ms", &self.settings.timeout.as_millis().to_string());
        for (name, value) in self.variables(secrets)? {
            add(&name, &value);
        }
        line.push_str("}\n");
        Ok(line)
    }
}

/// A string as Python and JavaScript read it.
fn push_quoted(line: &mut String, text: &str) {
    line.push('"');
    for character in text.chars() {
        match character {
            '"' | '\\' => line.extend(['\\', character]),
            // Line separators end a line for some readers too.
            '\0'..='\x1f' | '\x7f'..='\u{9f}' | '\u{2028}' | '\u{2029}' => {
                _ = write!(line, "\\u{:04x}", u32::from(character));
            }
            _ => line.push(character),
        }
    }
    line.push('"');
}

/// The data of a tree.
fn object(store: &Store, handle: Handle) -> Result<Object, Fault> {
    // Refs too: the evaluator has no need to bring what is read here.
    if !handle.is_value() || handle.is_failure() || !handle.names_tree() {
        return Err(bad("a function's layers and settings are trees"));
    }
    match store.get(handle.definition()) {
        Ok(Some(object)) => Ok(object),
        Ok(None) => {
            let why = format!("{handle} of the function is not on this node; deploy it again");
            Err(Fault::new(FailureCode::MissingData, why))
        }
        Err(error) => Err(Fault::new(FailureCode::Resources, error.to_string())),
    }
}

impl Settings {
    /// Whether all of it is for a function of this runtime, and goes together.
    fn check(&self, runtime: &str) -> Result<(), Fault> {
        if self.calls_at_once > 1 && self.mode.as_deref().is_some_and(|mode| mode != "http") {
            return Err(bad(
                "what is native, reads its standard input or asks for its events serves one request at a time: leave \"requests-per-instance\" or \"mode\" out",
            ));
        }
        if self.calls_at_once > adapter::CALLS_AT_ONCE_MAX && runtime == Language::Executable.runtime() {
            let most = adapter::CALLS_AT_ONCE_MAX;
            return Err(bad(format!("an executable takes at most {most} of requests-per-instance")));
        }
        if self.calls_at_once > 1 && self.part.is_some() {
            return Err(bad(
                "workflows and their steps are served one at a time: leave requests-per-instance out",
            ));
        }
        if self.part.is_some() && runtime != Language::Python.runtime() {
            return Err(bad(format!(
                "workflows are written in Python, and this is a function for {runtime}"
            )));
        }
        if self.hands_memory_over() && self.mode.as_deref() != Some(NATIVE) {
            return Err(bad(
                "only workflows and native functions hand memory over: leave \"values\" out, or say mode = \"native\"",
            ));
        }
        if self.streams_body && self.mode.as_deref().is_some_and(|mode| mode != "http") {
            return Err(bad(
                "what is native, reads its standard input or asks for its events gets the whole body: leave \"body\" or \"mode\" out",
            ));
        }
        let has_events = [Language::Python, Language::Node].map(Language::runtime).contains(&runtime);
        let has_events = has_events || self.mode.as_deref() == Some(LAMBDA);
        if self.takes_http_event && (!has_events || self.part.is_some() || self.streams_body) {
            return Err(bad(
                "an event is what a function in Python or Node takes, or an executable with mode = \"lambda\", that is no workflow and has a whole body: leave \"event\" out",
            ));
        }
        let is_alone = self.part.is_some() || self.streams_body;
        if self.together.is_some() && (runtime == Language::Executable.runtime() || is_alone) {
            return Err(bad(
                "functions are together in Python and Node, and are no workflows and take no body while it comes: leave \"together\" out",
            ));
        }
        if !self.imports.is_empty() && runtime == Language::Executable.runtime() {
            return Err(bad("an executable imports nothing: leave \"imports\" out"));
        }
        if self.mode.is_some() && runtime != Language::Executable.runtime() {
            return Err(bad(format!("\"mode\" is no setting of a function for {runtime}")));
        }
        Ok(())
    }

    /// Reads settings; a name that means nothing is refused.
    ///
    /// # Errors
    /// `bad-procedure`.
    pub fn read(pairs: &Pairs) -> Result<Self, Fault> {
        let mut settings = Self::default();
        for (name, value) in pairs.iter() {
            let text = std::str::from_utf8(value);
            let text = text.map_err(|_| bad(format!("the setting {name} is not UTF-8")))?;
            match name {
                // It tells apart functions of the same code, which share no instance.
                "function" if (1..=NAME_LEN_MAX).contains(&text.len()) => {
                    text.clone_into(&mut settings.function)
                }
                "mode" if matches!(text, "http" | "stdin" | LAMBDA | NATIVE) => {
                    settings.mode = Some(text.to_owned())
                }
                "handler" => settings.handler = Some(checked_handler(text)?),
                "timeout-ms" => settings.timeout = Duration::from_millis(number(name, text, 1, 86_400_000)?),
                "cpu-percent" => {
                    settings.cpu_percent = u32::try_from(number(name, text, 1, 6400)?).unwrap_or(u32::MAX);
                }
                "part" if text == "workflow" => settings.part = Some(Part::Workflow),
                "part" if text == "step" => settings.part = Some(Part::Step),
                "values" if matches!(text, MAP | SEND) => settings.maps_values = text == MAP,
                "body" if text == STREAM => settings.streams_body = true,
                "event" if text == HTTP_EVENT => settings.takes_http_event = true,
                "requests-per-instance" => {
                    settings.calls_at_once = u16::try_from(number(name, text, 1, 1000)?).unwrap_or(u16::MAX);
                }
                "disk-bytes-per-second" => {
                    settings.disk_bytes_per_s = Some(number(name, text, DISK_RATE_MIN, 1 << 40)?);
                }
                "imports" => settings.imports = modules(text)?,
                "together" => settings.together = Some(group(text)?),
                "allow-hosts" => settings.allow_hosts = hosts(text)?,
                "tmp-bytes" => settings.tmp_bytes = number(name, text, 0, 1 << 40)?,
                _ if name.starts_with("secret.") => {
                    let variable = &name["secret.".len()..];
                    if !is_variable(variable) || !is_variable(text) {
                        return Err(bad(format!("{name:?} is {text:?}, which names no secret")));
                    }
                    settings.secrets.insert(variable.to_owned(), text.to_owned());
                }
                _ => match name.strip_prefix("env.") {
                    Some(variable) if is_variable(variable) && !text.contains('\0') => {
                        settings.environment.insert(variable.to_owned(), text.to_owned());
                    }
                    _ => return Err(bad(format!("{name:?} is no setting of a function"))),
                },
            }
        }
        match settings.secrets.keys().find(|variable| settings.environment.contains_key(*variable)) {
            Some(twice) => Err(bad(format!("the variable {twice} is a secret and a setting"))),
            None => Ok(settings),
        }
    }
}

/// Modules, a space between two; an interpreter looks for them where its own
/// packages are, so that none is a path.
fn modules(text: &str) -> Result<Vec<String>, Fault> {
    let names: Vec<String> = text.split(' ').map(str::to_owned).collect();
    if names.len() > IMPORTS_MAX || !names.iter().all(|name| is_module(name)) {
        return Err(bad(format!("\"imports\" is no list of at most {IMPORTS_MAX} modules")));
    }
    Ok(names)
}

/// Whether this is the name of a module, as `numpy`, `os.path` or `@scope/name`.
pub fn is_module(name: &str) -> bool {
    let is_plain =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'/' | b'@');
    let begins =
        name.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'@'));
    begins && name.len() <= MODULE_LEN_MAX && name.bytes().all(is_plain) && !name.contains("..")
}

/// The name of a group of functions.
fn group(text: &str) -> Result<String, Fault> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    if is_plain && (1..=NAME_LEN_MAX).contains(&text.len()) {
        return Ok(text.to_owned());
    }
    Err(bad(format!("the group {text:?} is not made of letters, digits and -")))
}

/// Hosts, a space between two. Whoever carries the connections knows what each
/// means.
fn hosts(text: &str) -> Result<Vec<String>, Fault> {
    let is_plain = text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ');
    if text.len() > HOSTS_BYTES_MAX || !is_plain {
        return Err(bad("\"allow-hosts\" is no list of hosts"));
    }
    Ok(text.split(' ').filter(|host| !host.is_empty()).map(str::to_owned).collect())
}

fn number(name: &str, text: &str, least: u64, most: u64) -> Result<u64, Fault> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|number| digits && (least..=most).contains(number));
    number.ok_or_else(|| bad(format!("the setting {name} is {text:?}, not a number from {least} to {most}")))
}

fn checked_handler(text: &str) -> Result<String, Fault> {
    let allowed =
        |character: char| character.is_alphanumeric() || matches!(character, '.' | '_' | '-' | '/' | '$');
    let is_right = (1..=256).contains(&text.len()) && text.chars().all(allowed) && !text.starts_with('/');
    if is_right && !text.split('/').any(|part| part == "..") {
        return Ok(text.to_owned());
    }
    Err(bad(format!("the handler {text:?} is not like `module.name`")))
}

fn is_variable(name: &str) -> bool {
    let is_plain = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_plain && !name.is_empty() && !name.starts_with(|first: char| first.is_ascii_digit())
}

#[cfg(test)]
mod tests;
