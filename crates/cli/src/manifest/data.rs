// SPDX-License-Identifier: Apache-2.0
//! A function as the pairs of `docs/spec/functions.md`, sections 2 to 4. What
//! is as by default is left out, so that to say it changes nothing.

use std::collections::BTreeMap;

use super::function::{Function, Mode, Runtime};

/// Names and values, sorted by the names' bytes.
pub(crate) type Pairs = BTreeMap<String, String>;

const TIMEOUT_DEFAULT_MS: u64 = 60_000;
/// A day.
const WORKFLOW_TIMEOUT_MS: u64 = 86_400_000;
const CPU_DEFAULT_PERCENT: u64 = 100;
const TMP_DEFAULT_BYTES: u64 = 16 << 20;
pub(super) const CONCURRENCY_DEFAULT: u64 = 16;
const WAITING_DEFAULT: u64 = 256;
const IDLE_DEFAULT_MS: u64 = 600_000;
const ATTEMPTS_DEFAULT: u64 = 3;
const AGE_DEFAULT_MS: u64 = 6 * 60 * 60 * 1000;
const MIN_BACKOFF_DEFAULT_MS: u64 = 1000;
const MAX_BACKOFF_DEFAULT_MS: u64 = 300_000;

/// What changes what the function does.
pub(crate) fn settings(function: &Function) -> Pairs {
    let mut pairs = Pairs::new();
    pairs.insert("function".to_owned(), function.name.clone());
    let is_lambda = function.mode == Mode::Lambda;
    let default_handler = match function.runtime {
        Runtime::Node => "index.handler",
        Runtime::Executable | Runtime::Java => "main",
        Runtime::Python | Runtime::Wasm | Runtime::Workflow => "main.handler",
    };
    // What is made of classes has its handler in itself.
    let handler = function.handler.as_deref().filter(|_| function.runtime != Runtime::Java);
    // As programs for Lambda are called.
    let handler = handler.or(is_lambda.then_some("bootstrap"));
    if let Some(handler) = handler.filter(|&handler| handler != default_handler) {
        pairs.insert("handler".to_owned(), handler.to_owned());
    }
    match function.mode {
        Mode::Http => {}
        Mode::Lambda => _ = pairs.insert("mode".to_owned(), "lambda".to_owned()),
        Mode::Standard => _ = pairs.insert("mode".to_owned(), "stdin".to_owned()),
        Mode::Native => _ = pairs.insert("mode".to_owned(), "native".to_owned()),
    }
    if function.mode == Mode::Native && function.maps_values == Some(true) {
        pairs.insert("values".to_owned(), "map".to_owned());
    }
    if function.takes_http_event {
        pairs.insert("event".to_owned(), "http".to_owned());
    }
    if function.streams_body {
        pairs.insert("body".to_owned(), "stream".to_owned());
    }
    if function.is_workflow {
        pairs.insert("part".to_owned(), "workflow".to_owned());
        if function.maps_values.unwrap_or(true) {
            pairs.insert("values".to_owned(), "map".to_owned());
        }
    }
    // A run waits for its steps.
    let timeout_ms = function.timeout_ms.or(function.is_workflow.then_some(WORKFLOW_TIMEOUT_MS));
    number(&mut pairs, "timeout-ms", timeout_ms, TIMEOUT_DEFAULT_MS);
    number(&mut pairs, "cpu-percent", function.cpu_percent, CPU_DEFAULT_PERCENT);
    number(&mut pairs, "requests-per-instance", function.requests_per_instance, 1);
    number(&mut pairs, "tmp-bytes", function.tmp_bytes, TMP_DEFAULT_BYTES);
    if let Some(rate) = function.disk_bytes_per_s {
        pairs.insert("disk-bytes-per-second".to_owned(), rate.to_string());
    }
    if let Some(imports) = function.imports.as_ref().filter(|imports| !imports.is_empty()) {
        pairs.insert("imports".to_owned(), imports.join(" "));
    }
    if let Some(together) = &function.together {
        pairs.insert("together".to_owned(), together.group.clone());
    }
    if !function.allow_hosts.is_empty() {
        pairs.insert("allow-hosts".to_owned(), function.allow_hosts.join(" "));
    }
    for (name, value) in &function.environment {
        pairs.insert(format!("env.{name}"), value.clone());
    }
    for name in &function.secrets {
        pairs.insert(format!("secret.{name}"), name.clone());
    }
    pairs
}

/// What changes how requests reach it.
pub(crate) fn serving(function: &Function) -> Pairs {
    let mut pairs = Pairs::new();
    number(&mut pairs, "concurrency", function.concurrency, CONCURRENCY_DEFAULT);
    number(&mut pairs, "min-instances", function.min_instances, 0);
    number(&mut pairs, "waiting", function.waiting, WAITING_DEFAULT);
    number(&mut pairs, "idle-ms", function.idle_ms, IDLE_DEFAULT_MS);
    let switches =
        [("pure", function.pure), ("idempotent", function.idempotent), ("public", function.public)];
    for (name, is_set) in switches {
        if is_set {
            pairs.insert(name.to_owned(), "true".to_owned());
        }
    }
    if function.runtime == Runtime::Workflow {
        // A run waits for its steps.
        let timeout_ms = function.timeout_ms.or(Some(WORKFLOW_TIMEOUT_MS));
        number(&mut pairs, "timeout-ms", timeout_ms, TIMEOUT_DEFAULT_MS);
    }
    if function.runtime == Runtime::Wasm {
        number(&mut pairs, "timeout-ms", function.timeout_ms, TIMEOUT_DEFAULT_MS);
        if let Some(kind) = &function.module.content_type {
            pairs.insert("content-type".to_owned(), kind.clone());
        }
    }
    if let Some(tool) = &function.tool {
        pairs.insert("tool".to_owned(), tool.clone());
    }
    pairs.insert("runtime".to_owned(), function.runtime.on_the_node().name().to_owned());
    let delivery = &function.delivery;
    number(&mut pairs, "async.max-attempts", delivery.max_attempts, ATTEMPTS_DEFAULT);
    number(&mut pairs, "async.max-age-ms", delivery.max_age_ms, AGE_DEFAULT_MS);
    number(&mut pairs, "async.min-backoff-ms", delivery.min_backoff_ms, MIN_BACKOFF_DEFAULT_MS);
    number(&mut pairs, "async.max-backoff-ms", delivery.max_backoff_ms, MAX_BACKOFF_DEFAULT_MS);
    for (at, schedule) in function.schedules.iter().enumerate() {
        pairs.insert(format!("schedule.{at}"), schedule.clone());
    }
    for (at, route) in function.routes.iter().enumerate() {
        pairs.insert(format!("route.{at}"), route.clone());
    }
    for (at, host) in function.hosts.iter().enumerate() {
        pairs.insert(format!("host.{at}"), host.clone());
    }
    pairs
}

fn number(pairs: &mut Pairs, name: &str, value: Option<u64>, default: u64) {
    if let Some(value) = value.filter(|&value| value != default) {
        pairs.insert(name.to_owned(), value.to_string());
    }
}
