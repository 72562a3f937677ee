// SPDX-License-Identifier: Apache-2.0
//! The names of a manifest's fields, for "did you mean" and the published schema.

/// Fields of a function, with the JSON types that the schema gives them.
pub(super) const FUNCTION: &[(&str, &[&str])] = &[
    ("name", &["string"]),
    ("runtime", &["string"]),
    ("source", &["string"]),
    ("handler", &["string"]),
    ("mode", &["string"]),
    ("body", &["string"]),
    ("event", &["string"]),
    ("memory", &["string", "integer"]),
    ("cpu", &["number"]),
    ("timeout", &["string", "number"]),
    ("tmp", &["string", "integer"]),
    ("disk", &["string", "integer"]),
    ("concurrency", &["integer"]),
    ("min-instances", &["integer"]),
    ("requests-per-instance", &["integer"]),
    ("waiting", &["integer"]),
    ("keep-alive", &["string", "number"]),
    ("environment", &["object"]),
    ("arguments", &["array"]),
    ("directories", &["object"]),
    ("content-type", &["string"]),
    ("fuel", &["integer"]),
    ("secrets", &["array"]),
    ("layers", &["array"]),
    ("together", &["string"]),
    ("allow-hosts", &["array"]),
    ("imports", &["array"]),
    ("requirements", &["boolean"]),
    ("pure", &["boolean"]),
    ("workflow", &["boolean"]),
    ("steps", &["object"]),
    ("result", &["string", "number", "boolean", "array", "object"]),
    ("values", &["string"]),
    ("idempotent", &["boolean"]),
    ("routes", &["array"]),
    ("hosts", &["array"]),
    ("public", &["boolean"]),
    ("tool", &["string", "object"]),
    ("schedules", &["array"]),
    ("async", &["object"]),
    ("build", &["object"]),
    ("include", &["array"]),
    ("exclude", &["array"]),
];

/// Fields of a step of a workflow that is declared.
pub(super) const STEP: &[(&str, &[&str])] = &[
    ("call", &["string"]),
    ("with", &["string", "number", "boolean", "array", "object"]),
    ("each", &["string", "array"]),
    ("when", &["string", "number", "boolean"]),
    ("after", &["array"]),
    ("may-fail", &["boolean"]),
    ("retries", &["integer"]),
    ("retry-delay", &["string", "number"]),
    ("timeout", &["string", "number"]),
];

/// Fields of a function's `tool`.
pub(super) const TOOL: &[(&str, &[&str])] =
    &[("description", &["string"]), ("input", &["object"]), ("read-only", &["boolean"])];

/// Fields of a function's `build`.
pub(super) const BUILD: &[(&str, &[&str])] =
    &[("command", &["string"]), ("watch", &["array"]), ("output", &["string"])];

/// Fields of a function's `async`.
pub(super) const ASYNC: &[(&str, &[&str])] = &[
    ("max-attempts", &["integer"]),
    ("max-age", &["string", "number"]),
    ("min-backoff", &["string", "number"]),
    ("max-backoff", &["string", "number"]),
];

/// The names alone.
pub(super) fn names(fields: &[(&'static str, &[&str])]) -> Vec<&'static str> {
    fields.iter().map(|&(name, _)| name).collect()
}
