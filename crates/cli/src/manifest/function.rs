// SPDX-License-Identifier: Apache-2.0
//! One function of a manifest.

use std::collections::BTreeMap;
use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::data::CONCURRENCY_DEFAULT;
use super::fault::Fault;
use super::glob::Glob;
use super::module::{self, Module};
use super::reader::Reader;
use super::together::{self, Together};
use super::{fields, tool, variables, workflow};

/// Memory of a function that does not say.
const MEMORY_DEFAULT_BYTES: u64 = 256 << 20;
const MEMORY_BYTES_MAX: u64 = 1 << 46;
pub(super) const TIMEOUT_MS_MAX: u64 = 86_400_000;
const TMP_BYTES_MAX: u64 = 1 << 40;
/// Bytes a second, of each disk.
const DISK_RATE_MIN: u64 = 64 << 10;
const DISK_RATE_MAX: u64 = 1 << 40;
const PERCENT_MAX: u64 = 6400;
const LAYERS_MAX: usize = 16;
/// Threads of its own that a machine of Java has besides are some twenty.
const JAVA_REQUESTS_MAX: u64 = 32;
// Pairs have at most 512 entries, and there are other settings.
const VARIABLES_MAX: usize = 180;
const SECRETS_MAX: usize = 60;
const ROUTES_MAX: usize = 64;
const OWN_HOSTS_MAX: usize = 16;
const HOSTS_MAX: usize = 64;
const SCHEDULES_MAX: usize = 16;
const NAME_CHARS_MAX: usize = 63;
const METHODS: [&str; 8] = ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "ANY"];

/// What runs a function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Runtime {
    Python,
    Node,
    /// An executable that is made of classes.
    Java,
    /// A program that serves HTTP, reads its standard input, or speaks the channel itself.
    Executable,
    Wasm,
    /// Calls of other functions, which are declared.
    Workflow,
}

/// How an executable is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    /// It serves HTTP.
    Http,
    /// It was made for AWS Lambda, and asks for its events.
    Lambda,
    /// It is run once for each request, and reads its standard input.
    Standard,
    /// It is linked with what `sinew sdk c` writes.
    Native,
}

impl Runtime {
    const ALL: [Self; 6] =
        [Self::Python, Self::Node, Self::Java, Self::Executable, Self::Wasm, Self::Workflow];
    pub(crate) const NAMES: [&str; 6] = ["python", "node", "java", "executable", "wasm", "workflow"];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Python => "python",
            Self::Node => "node",
            Self::Java => "java",
            Self::Executable => "executable",
            Self::Wasm => "wasm",
            Self::Workflow => "workflow",
        }
    }

    /// What a node runs it with.
    pub(crate) fn on_the_node(self) -> Self {
        if self == Self::Java { Self::Executable } else { self }
    }

    fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|runtime| runtime.name() == name)
    }

    /// What other platforms call this runtime.
    fn meant(name: &str) -> Option<Self> {
        let name = name.to_ascii_lowercase();
        let begins = |words: &[&str]| words.iter().any(|word| name.starts_with(word));
        if begins(&["python", "py"]) {
            return Some(Self::Python);
        }
        if begins(&["node", "javascript", "js", "typescript", "ts", "deno", "bun"]) {
            return Some(Self::Node);
        }
        if begins(&["java", "jvm", "kotlin", "scala"]) {
            return Some(Self::Java);
        }
        if begins(&["wasm", "webassembly", "wasi", "wat"]) {
            return Some(Self::Wasm);
        }
        let programs =
            ["go", "rust", "c", "c++", "cpp", "shell", "sh", "bash", "binary", "exec", "program", "provided"];
        // Versions follow, as in `go1.x`.
        let word = name.trim_end_matches(|each: char| !each.is_ascii_lowercase() && each != '+');
        let word = word.split(|each: char| each.is_ascii_digit()).next().unwrap_or_default();
        programs.contains(&word).then_some(Self::Executable)
    }
}

/// How a function's code is made.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Build {
    /// For the shell, in the manifest's directory.
    pub(crate) command: String,
    /// Patterns of the files from which the code is made.
    pub(crate) watch: Vec<Glob>,
    /// What is uploaded instead of the source.
    pub(crate) output: Option<String>,
}

/// How calls that are made later are tried.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Delivery {
    pub(crate) max_attempts: Option<u64>,
    pub(crate) max_age_ms: Option<u64>,
    pub(crate) min_backoff_ms: Option<u64>,
    pub(crate) max_backoff_ms: Option<u64>,
}

/// A function, as its manifest describes it. `None`: the node's default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    pub(crate) name: String,
    pub(crate) runtime: Runtime,
    /// A directory, or a file; relative to the manifest.
    pub(crate) source: String,
    pub(crate) handler: Option<String>,
    /// How an executable is asked.
    pub(crate) mode: Mode,
    /// Bodies of requests are passed to it while they come.
    pub(crate) streams_body: bool,
    /// Its event is the request by HTTP, and not the body.
    pub(crate) takes_http_event: bool,
    pub(crate) memory_bytes: u64,
    pub(crate) cpu_percent: Option<u64>,
    pub(crate) timeout_ms: Option<u64>,
    pub(crate) tmp_bytes: Option<u64>,
    /// Of each disk, read; and as many written.
    pub(crate) disk_bytes_per_s: Option<u64>,
    pub(crate) concurrency: Option<u64>,
    /// Instances that there are at least, also when nobody calls it.
    pub(crate) min_instances: Option<u64>,
    pub(crate) requests_per_instance: Option<u64>,
    pub(crate) waiting: Option<u64>,
    pub(crate) idle_ms: Option<u64>,
    pub(crate) environment: BTreeMap<String, String>,
    /// What a module is told, and how its answers are.
    pub(crate) module: Module,
    /// Their names, which are the variables' too.
    pub(crate) secrets: Vec<String>,
    pub(crate) layers: Vec<String>,
    /// Hosts that it may reach.
    pub(crate) allow_hosts: Vec<String>,
    /// The group of functions that call each other within one instance.
    pub(crate) together: Option<Together>,
    /// Modules that are loaded before it is forked; `None` if nothing is said of them.
    pub(crate) imports: Option<Vec<String>>,
    /// Packages that its files name are installed.
    pub(crate) has_requirements: bool,
    pub(crate) pure: bool,
    pub(crate) idempotent: bool,
    /// Its calls of its own functions are steps.
    pub(crate) is_workflow: bool,
    /// Of a workflow that is declared: its steps, as the JSON that nodes read.
    pub(crate) declaration: Option<String>,
    /// Whether what its steps make is mapped by those that are given it, if that is said.
    pub(crate) maps_values: Option<bool>,
    /// `METHOD path`.
    pub(crate) routes: Vec<String>,
    /// Host names that are its own.
    pub(crate) hosts: Vec<String>,
    /// It answers without a key.
    pub(crate) public: bool,
    /// What agents are told of it, as the JSON that nodes read.
    pub(crate) tool: Option<String>,
    /// Five fields of cron, or `@hourly` and the like.
    pub(crate) schedules: Vec<String>,
    pub(crate) delivery: Delivery,
    pub(crate) build: Option<Build>,
    pub(crate) include: Vec<Glob>,
    pub(crate) exclude: Vec<Glob>,
}

impl Function {
    pub(crate) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            runtime: Runtime::Python,
            source: ".".to_owned(),
            handler: None,
            mode: Mode::Http,
            streams_body: false,
            takes_http_event: false,
            memory_bytes: MEMORY_DEFAULT_BYTES,
            cpu_percent: None,
            timeout_ms: None,
            tmp_bytes: None,
            disk_bytes_per_s: None,
            concurrency: None,
            min_instances: None,
            requests_per_instance: None,
            waiting: None,
            idle_ms: None,
            environment: BTreeMap::new(),
            module: Module::default(),
            secrets: Vec::new(),
            layers: Vec::new(),
            allow_hosts: Vec::new(),
            together: None,
            imports: None,
            has_requirements: true,
            pure: false,
            idempotent: false,
            is_workflow: false,
            declaration: None,
            maps_values: None,
            routes: Vec::new(),
            hosts: Vec::new(),
            public: false,
            tool: None,
            schedules: Vec::new(),
            delivery: Delivery::default(),
            build: None,
            include: Vec::new(),
            exclude: Vec::new(),
        }
    }
}

/// A table as a function; what is wrong with it is noted in the reader.
pub(super) fn read(
    name: &str,
    place: &Range<usize>,
    table: &DeTable<'_>,
    reader: &mut Reader<'_>,
) -> Option<Function> {
    if !is_function_name(name) {
        let message = format!("`{}` cannot be a function's name", name.escape_debug());
        let hint = "names have 1 to 63 characters of a-z, 0-9 and -, and begin with a letter";
        reader.faults.push(Fault::new(place.clone(), message).hint(hint));
    }
    let mut function = Function::new(name);
    let mut has_runtime = false;
    for (key, value) in table {
        has_runtime |= key.get_ref() == "runtime";
        field(&mut function, key, value, reader);
    }
    if !has_runtime {
        let fault = Fault::new(place.clone(), format!("the function {name} has no runtime"));
        reader.faults.push(
            fault.hint(
                "add runtime = \"python\", \"node\", \"java\", \"executable\", \"wasm\" or \"workflow\"",
            ),
        );
    } else if function.runtime == Runtime::Workflow {
        function.declaration = workflow::read(name, table, reader);
    } else if function.runtime == Runtime::Wasm {
        meaningless(table, reader);
    } else {
        of_this_runtime(&function, table, reader);
    }
    if function.runtime != Runtime::Workflow {
        workflow::refuse(table, reader);
    }
    if function.is_workflow && !matches!(function.runtime, Runtime::Python | Runtime::Workflow) {
        let message = format!("{name} is a workflow, and these are written in Python");
        let hint =
            "write runtime = \"python\", or remove `workflow`; steps can call functions in every language";
        reader.faults.push(Fault::new(place.clone(), message).hint(hint));
    }
    if function.maps_values.is_some() && !function.is_workflow && function.mode != Mode::Native {
        let message = format!("{name} is neither a workflow nor native, and hands no values over");
        let hint = "leave `values` out, or add workflow = true, or mode = \"native\" for an executable";
        reader.faults.push(Fault::new(place.clone(), message).hint(hint));
    }
    if function.maps_values == Some(true) && function.pure && function.mode == Mode::Native {
        let message = format!("{name} is pure, and what is remembered cannot be memory");
        reader.faults.push(Fault::new(place.clone(), message).hint("leave `pure` or `values` out"));
    }
    if function.is_workflow && (function.pure || function.idempotent || function.streams_body) {
        let message = format!("{name} is a workflow: its steps are pure or not, and made again or not");
        let hint = "leave out `pure`, `idempotent` and `body`; @function(pure=True) makes a step pure";
        reader.faults.push(Fault::new(place.clone(), message).hint(hint));
    }
    check_least(&function, place, table, reader);
    check_event(&function, table, reader);
    if function.streams_body && (function.pure || function.idempotent || function.mode != Mode::Http) {
        let message = format!(
            "the body of {name} is passed on while it comes, so that it is there once and never whole"
        );
        let hint = "leave out `pure`, `idempotent` and `mode`, or body = \"stream\"";
        reader.faults.push(Fault::new(place.clone(), message).hint(hint));
    }
    if function.pure && function.routes.iter().any(|route| route.contains('{')) {
        let message =
            format!("{name} is pure: its result depends on the body alone, so no part of a path reaches it");
        reader.faults.push(Fault::new(place.clone(), message).hint("take the {…} out of its routes"));
    }
    Some(function)
}

/// Notes that it is to have more instances than it may have.
fn check_least(function: &Function, place: &Range<usize>, table: &DeTable<'_>, reader: &mut Reader<'_>) {
    let most = function.concurrency.unwrap_or(CONCURRENCY_DEFAULT);
    let Some(least) = function.min_instances.filter(|&least| least > most) else { return };
    let place = table.get("min-instances").map_or_else(|| place.clone(), Spanned::span);
    let message = format!("{} has at most {most} instances, and is to have {least} at least", function.name);
    reader.faults.push(Fault::new(place, message).hint("raise `concurrency`, or lower `min-instances`"));
}

/// Notes that it is to take an event that it cannot have. Of a module that has been noted already, as a field
/// that means nothing there.
fn check_event(function: &Function, table: &DeTable<'_>, reader: &mut Reader<'_>) {
    let asks = function.runtime == Runtime::Executable && function.mode == Mode::Lambda;
    let has_events = matches!(function.runtime, Runtime::Python | Runtime::Node) || asks;
    let is_told_less = function.pure || function.is_workflow || function.streams_body;
    if !function.takes_http_event || function.runtime == Runtime::Wasm || (has_events && !is_told_less) {
        return;
    }
    let (name, runtime) = (&function.name, function.runtime.name());
    let (message, hint) = match has_events {
        true => (
            format!("{name} is told less than a whole request"),
            "leave out `event`, or `pure`, `workflow` and `body`",
        ),
        false => (
            format!("{name} is for {runtime}, whose functions take no event of this kind"),
            "remove `event`; an executable has one with mode = \"lambda\"",
        ),
    };
    let place = table.get("event").map(Spanned::span).unwrap_or_default();
    reader.faults.push(Fault::new(place, message).hint(hint));
}

/// One field into the function.
fn field(
    function: &mut Function,
    key: &Spanned<toml::de::DeString<'_>>,
    value: &Spanned<DeValue<'_>>,
    reader: &mut Reader<'_>,
) -> Option<()> {
    match key.get_ref().as_ref() {
        // Read before everything else.
        "name" => {}
        "runtime" => function.runtime = runtime(value, reader)?,
        "source" => function.source = path(value, reader)?,
        "handler" => function.handler = Some(handler(value, reader)?),
        "mode" => function.mode = mode(value, reader)?,
        "body" => function.streams_body = body(value, reader)?,
        "event" => function.takes_http_event = event(value, reader)?,
        "memory" => function.memory_bytes = reader.size(value, 1 << 20..=MEMORY_BYTES_MAX)?,
        "cpu" => function.cpu_percent = Some(reader.processors_percent(value, PERCENT_MAX)?),
        "timeout" => function.timeout_ms = Some(reader.time_ms(value, 1..=TIMEOUT_MS_MAX)?),
        "disk" => function.disk_bytes_per_s = Some(reader.size(value, DISK_RATE_MIN..=DISK_RATE_MAX)?),
        "tmp" => function.tmp_bytes = Some(reader.size(value, 0..=TMP_BYTES_MAX)?),
        "concurrency" => function.concurrency = Some(reader.count(value, 1..=1000)?),
        "min-instances" => function.min_instances = Some(reader.count(value, 0..=1000)?),
        "requests-per-instance" => function.requests_per_instance = Some(reader.count(value, 1..=1000)?),
        "waiting" => function.waiting = Some(reader.count(value, 0..=100_000)?),
        "keep-alive" => function.idle_ms = Some(reader.time_ms(value, 0..=365 * TIMEOUT_MS_MAX)?),
        "environment" => function.environment = environment(value, reader)?,
        "arguments" | "directories" | "content-type" | "fuel" => {
            module::field(&mut function.module, key.get_ref(), value, reader)?;
        }
        "secrets" => function.secrets = secrets(value, reader)?,
        "layers" => function.layers = layers(value, reader)?,
        "together" => function.together = Some(together::read(value, reader)?),
        "imports" => function.imports = Some(imports(value, reader)?),
        "allow-hosts" => function.allow_hosts = hosts(value, reader)?,
        "requirements" => function.has_requirements = reader.switch(value)?,
        "pure" => function.pure = reader.switch(value)?,
        "idempotent" => function.idempotent = reader.switch(value)?,
        // Read with each other.
        "steps" | "result" => {}
        "workflow" => function.is_workflow = reader.switch(value)?,
        "values" => function.maps_values = Some(maps_values(value, reader)?),
        "routes" => function.routes = routes(value, reader)?,
        "hosts" => function.hosts = own_hosts(value, reader)?,
        "public" => function.public = reader.switch(value)?,
        "tool" => function.tool = Some(tool::read(value, reader)?),
        "schedules" => function.schedules = schedules(value, reader)?,
        "async" => function.delivery = delivery(value, reader)?,
        "build" => function.build = Some(build(value, reader)?),
        "include" => function.include = globs(value, reader)?,
        "exclude" => function.exclude = globs(value, reader)?,
        unknown => reader.unknown(unknown, key.span(), "field", &fields::names(fields::FUNCTION)),
    }
    Some(())
}

/// 1 to 63 characters of `a-z`, `0-9`, `-`, with a letter first.
pub(crate) fn is_function_name(name: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    name.len() <= NAME_CHARS_MAX
        && name.bytes().next().is_some_and(|first| first.is_ascii_lowercase())
        && name.bytes().all(allowed)
}

/// Fields that say how a process is run, which a module is not.
fn meaningless(table: &DeTable<'_>, reader: &mut Reader<'_>) {
    for (key, _) in table {
        let name = key.get_ref().as_ref();
        if [
            "handler",
            "mode",
            "body",
            "event",
            "requests-per-instance",
            "min-instances",
            "cpu",
            "tmp",
            "disk",
            "imports",
            "secrets",
            "layers",
            "allow-hosts",
            "together",
            "requirements",
            "include",
            "exclude",
        ]
        .contains(&name)
        {
            let message =
                format!("`{name}` means nothing for a wasm function, which is one module and no process");
            reader.faults.push(Fault::new(key.span(), message).hint("remove it"));
        }
    }
}

fn runtime(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Runtime> {
    let name = reader.text(value)?;
    if let Some(runtime) = Runtime::from_name(&name) {
        return Some(runtime);
    }
    match Runtime::meant(&name) {
        Some(meant) => {
            let fault = Fault::new(value.span(), format!("unknown runtime `{}`", name.escape_debug()));
            reader.faults.push(fault.hint(format!("did you mean `{}`?", meant.name())));
        }
        None => reader.unknown(&name, value.span(), "runtime", &Runtime::NAMES),
    }
    None
}

/// A path below the manifest's directory.
pub(super) fn path(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<String> {
    let text = reader.text(value)?;
    let leaves = text.starts_with('/') || text.split('/').any(|part| part == "..");
    if text.is_empty() || text.contains('\0') || leaves {
        return reader.fault(value.span(), "expected is a path below the manifest's directory, without `..`");
    }
    Some(text)
}

fn handler(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<String> {
    let text = reader.text(value)?;
    let leaves = text.starts_with('/') || text.split('/').any(|part| part == "..");
    if text.is_empty() || text.len() > 256 || text.contains(char::is_whitespace) || leaves {
        return reader.fault(
            value.span(),
            "a handler is written module.name, like \"main.handler\", or is an executable's path below the source",
        );
    }
    Some(text)
}

/// How it gets the bodies of requests: whether while they come.
fn body(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<bool> {
    let text = reader.text(value)?;
    match text.as_str() {
        "whole" => Some(false),
        "stream" => Some(true),
        _ => {
            reader.unknown(&text, value.span(), "body", &["whole", "stream"]);
            None
        }
    }
}

/// What its event is: whether the request by HTTP.
fn event(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<bool> {
    let text = reader.text(value)?;
    match text.as_str() {
        "body" => Some(false),
        "http" => Some(true),
        _ => {
            reader.unknown(&text, value.span(), "event", &["body", "http"]);
            None
        }
    }
}

/// `http`, `stdin`, `lambda` or `native`.
fn mode(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Mode> {
    let text = reader.text(value)?;
    match text.as_str() {
        "http" => Some(Mode::Http),
        "lambda" => Some(Mode::Lambda),
        "stdin" => Some(Mode::Standard),
        "native" => Some(Mode::Native),
        _ => {
            reader.unknown(&text, value.span(), "mode", &["http", "stdin", "lambda", "native"]);
            None
        }
    }
}

/// What means something for some of the runtimes that run processes only.
fn of_this_runtime(function: &Function, table: &DeTable<'_>, reader: &mut Reader<'_>) {
    let place = |field: &str| table.get(field).map(Spanned::span).unwrap_or_default();
    for field in module::FIELDS.into_iter().filter(|field| table.contains_key(*field)) {
        let fault = Fault::new(place(field), format!("only a wasm function has `{field}`"));
        reader.faults.push(fault.hint("remove it, or write runtime = \"wasm\""));
    }
    if function.runtime == Runtime::Java && function.streams_body {
        let message = "a java function's handler takes the whole body";
        reader.faults.push(Fault::new(place("body"), message).hint("remove `body`"));
    }
    if function.runtime == Runtime::Java && function.handler.is_none() {
        let fault = Fault::new(place("runtime"), "a java function needs a handler");
        reader.faults.push(fault.hint("add handler = \"hello.Handler\", or \"hello.Handler::method\""));
    }
    if function.runtime == Runtime::Java && function.requests_per_instance > Some(JAVA_REQUESTS_MAX) {
        let message = format!("a java function takes at most {JAVA_REQUESTS_MAX} requests at the same time");
        let hint = "each has a thread, and an instance 64 of those; `concurrency` has more instances";
        reader.faults.push(Fault::new(place("requests-per-instance"), message).hint(hint));
    }
    if matches!(function.runtime, Runtime::Executable | Runtime::Java) {
        if function.runtime == Runtime::Java && table.contains_key("mode") {
            let fault = Fault::new(place("mode"), "only an executable has a `mode`");
            reader.faults.push(fault.hint("remove it"));
        }
        if table.contains_key("imports") {
            let fault = Fault::new(place("imports"), "an executable imports nothing before it starts");
            reader.faults.push(fault.hint("remove it"));
        }
        return;
    }
    if table.contains_key("mode") {
        let fault = Fault::new(place("mode"), "only an executable has a `mode`");
        reader.faults.push(fault.hint("remove it, or write runtime = \"executable\""));
    }
    let has_parts = |handler: &String| {
        handler.rsplit_once('.').is_some_and(|(module, name)| !module.is_empty() && !name.is_empty())
    };
    if !function.handler.as_ref().is_none_or(has_parts) {
        let message = "a handler is written module.name, like \"main.handler\"";
        reader.faults.push(Fault::new(place("handler"), message));
    }
}

fn environment(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<BTreeMap<String, String>> {
    let table = reader.table(value)?;
    if table.len() > VARIABLES_MAX {
        return reader.fault(value.span(), format!("a function has at most {VARIABLES_MAX} variables"));
    }
    let mut environment = BTreeMap::new();
    for (key, value) in table {
        let name = key.get_ref().as_ref();
        if !variables::is_name(name) || name.len() > 120 {
            let message = format!("`{}` cannot be a variable's name", name.escape_debug());
            reader.faults.push(Fault::new(key.span(), message));
            continue;
        }
        let Some(text) = reader.text(value) else { continue };
        if text.len() > 65_536 || text.contains('\0') {
            reader.faults.push(Fault::new(value.span(), "a variable has at most 65536 bytes, and no NUL"));
            continue;
        }
        environment.insert(name.to_owned(), text);
    }
    Some(environment)
}

fn secrets(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Vec<String>> {
    let texts = reader.texts(value)?;
    if texts.len() > SECRETS_MAX {
        return reader.fault(value.span(), format!("a function has at most {SECRETS_MAX} secrets"));
    }
    let mut secrets = Vec::new();
    for (text, place) in texts {
        if variables::is_name(&text) && text.len() <= 64 {
            secrets.push(text);
        } else {
            let fault = Fault::new(place, format!("`{}` cannot be a secret's name", text.escape_debug()));
            let hint = "names only, as of variables: secrets = [\"DB_URL\"]; `sinew secret set DB_URL` sets the value";
            reader.faults.push(fault.hint(hint));
        }
    }
    Some(secrets)
}

fn layers(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Vec<String>> {
    let DeValue::Array(items) = value.get_ref() else {
        return reader.texts(value).map(|_| Vec::new());
    };
    if items.len() > LAYERS_MAX {
        return reader.fault(value.span(), format!("a function has at most {LAYERS_MAX} layers"));
    }
    items.iter().map(|item| path(item, reader)).collect()
}

fn maps_values(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<bool> {
    match reader.text(value)?.as_str() {
        "map" => Some(true),
        "send" => Some(false),
        other => {
            let message = format!("`{}` is no way to hand values over", other.escape_debug());
            reader.faults.push(Fault::new(value.span(), message).hint("values = \"map\" or \"send\""));
            None
        }
    }
}

fn imports(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Vec<String>> {
    let mut modules = Vec::new();
    for (text, place) in reader.texts(value)? {
        if node::is_module(&text) {
            modules.push(text);
        } else {
            let message = format!("`{}` is no name of a module", text.escape_debug());
            reader.faults.push(Fault::new(place, message).hint("imports = [\"numpy\", \"pandas\"]"));
        }
    }
    if modules.len() > node::IMPORTS_MAX {
        let most = node::IMPORTS_MAX;
        return reader.fault(value.span(), format!("a function has at most {most} imports"));
    }
    Some(modules)
}

fn hosts(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Vec<String>> {
    let mut hosts = Vec::new();
    for (text, place) in reader.texts(value)? {
        match node::check_host(&text) {
            Ok(()) => hosts.push(text),
            Err(why) => {
                let hint = "allow-hosts = [\"api.example.com\", \"*.example.org:8443\", \"10.0.0.5:5432\"]";
                reader.faults.push(Fault::new(place, why).hint(hint));
            }
        }
    }
    if hosts.len() > HOSTS_MAX {
        return reader.fault(value.span(), format!("a function has at most {HOSTS_MAX} hosts"));
    }
    Some(hosts)
}

/// Names of hosts that are a function's own; the node looks at them more closely.
fn own_hosts(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Vec<String>> {
    let texts = reader.texts(value)?;
    if texts.len() > OWN_HOSTS_MAX {
        return reader
            .fault(value.span(), format!("a function has at most {OWN_HOSTS_MAX} host names of its own"));
    }
    let mut hosts = Vec::new();
    for (text, place) in texts {
        let plain =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.');
        if text.is_empty() || !text.bytes().all(plain) {
            let fault = Fault::new(place, format!("`{}` is no host name", text.escape_debug()));
            reader.faults.push(
                fault.hint("write it as \"shop.example.org\", in lower case, without scheme, port and path"),
            );
        } else if text == "localhost" || text.ends_with(".localhost") {
            let fault = Fault::new(place, format!("`{text}` is this machine's"));
            reader.faults.push(fault.hint("a function is found at NAME.localhost anyway: leave it out"));
        } else {
            hosts.push(text);
        }
    }
    Some(hosts)
}

/// `METHOD /path`, or `/path` for any method.
fn routes(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Vec<String>> {
    let texts = reader.texts(value)?;
    if texts.len() > ROUTES_MAX {
        return reader.fault(value.span(), format!("a function has at most {ROUTES_MAX} routes"));
    }
    let mut routes = Vec::new();
    for (text, place) in texts {
        let words: Vec<&str> = text.split_whitespace().collect();
        let (method, path) = match words[..] {
            [path] => ("ANY", path),
            [method, path] => (method, path),
            _ => ("", ""),
        };
        if !path.starts_with('/') || path.len() > 1024 {
            let fault = Fault::new(place, format!("`{}` is no route", text.escape_debug()));
            reader
                .faults
                .push(fault.hint("a route is written \"GET /hello/{name}\", or \"/hello\" for every method"));
        } else if !METHODS.contains(&method) {
            reader.unknown(method, place, "method", &METHODS);
        } else if !has_whole_braces(path) {
            reader
                .faults
                .push(Fault::new(place, "a part of a path in braces is a whole part: /hello/{name}"));
        } else {
            routes.push(format!("{method} {path}"));
        }
    }
    Some(routes)
}

fn has_whole_braces(path: &str) -> bool {
    path.split('/').all(|part| match part.strip_prefix('{').and_then(|part| part.strip_suffix('}')) {
        Some(name) => variables::is_name(name.strip_prefix('*').unwrap_or(name)),
        None => !part.contains(['{', '}']),
    })
}

fn globs(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Vec<Glob>> {
    let mut globs = Vec::new();
    for (text, place) in reader.texts(value)? {
        match Glob::new(&text) {
            Ok(glob) => globs.push(glob),
            Err(message) => reader.faults.push(Fault::new(place, message)),
        }
    }
    Some(globs)
}

fn schedules(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Vec<String>> {
    let texts = reader.texts(value)?;
    if texts.len() > SCHEDULES_MAX {
        return reader.fault(value.span(), format!("a function has at most {SCHEDULES_MAX} schedules"));
    }
    let mut schedules = Vec::new();
    for (text, place) in texts {
        // The node reads them whole.
        if text.starts_with('@') || text.split_whitespace().count() == 5 {
            schedules.push(text);
        } else {
            let fault = Fault::new(place, format!("`{}` is no schedule", text.escape_debug()));
            let hint = "five fields in UTC, minute hour day month weekday: \"*/15 * * * *\"; or \"@hourly\"";
            reader.faults.push(fault.hint(hint));
        }
    }
    Some(schedules)
}

fn delivery(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Delivery> {
    let mut delivery = Delivery::default();
    for (key, inner) in reader.table(value)? {
        match key.get_ref().as_ref() {
            "max-attempts" => delivery.max_attempts = reader.count(inner, 1..=100),
            "max-age" => delivery.max_age_ms = reader.time_ms(inner, 1..=14 * TIMEOUT_MS_MAX),
            "min-backoff" => delivery.min_backoff_ms = reader.time_ms(inner, 1..=TIMEOUT_MS_MAX),
            "max-backoff" => delivery.max_backoff_ms = reader.time_ms(inner, 1..=TIMEOUT_MS_MAX),
            unknown => reader.unknown(unknown, key.span(), "field", &fields::names(fields::ASYNC)),
        }
    }
    let (least, most) = (delivery.min_backoff_ms.unwrap_or(1000), delivery.max_backoff_ms.unwrap_or(300_000));
    if least > most {
        return reader.fault(value.span(), "min-backoff is longer than max-backoff");
    }
    Some(delivery)
}

fn build(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Build> {
    let mut build = Build::default();
    for (key, inner) in reader.table(value)? {
        match key.get_ref().as_ref() {
            "command" => build.command = reader.text(inner).unwrap_or_default(),
            "watch" => build.watch = globs(inner, reader).unwrap_or_default(),
            "output" => build.output = path(inner, reader),
            unknown => reader.unknown(unknown, key.span(), "field", &fields::names(fields::BUILD)),
        }
    }
    if build.command.trim().is_empty() || build.command.contains('\0') {
        return reader.fault(value.span(), "a build needs a command, like command = \"make\"");
    }
    Some(build)
}
