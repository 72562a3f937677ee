// SPDX-License-Identifier: Apache-2.0
//! What a deployment says of itself as a tool of agents.

use gateway::Tool;
use objects::Pairs;
use serde_json::Value;

/// Of all that is said of it.
const TEXT_BYTES_MAX: usize = 32 << 10;
const DESCRIPTION_BYTES_MAX: usize = 4 << 10;

/// Reads the entry `tool`: JSON with `description`, `input` and `read_only`.
///
/// # Errors
/// Why it says nothing.
pub(super) fn read(serving: &Pairs) -> Result<Option<Tool>, String> {
    let Some(text) = serving.get("tool") else { return Ok(None) };
    if text.len() > TEXT_BYTES_MAX {
        return Err(format!("tool has {} bytes, and at most {TEXT_BYTES_MAX}", text.len()));
    }
    let told: Value = serde_json::from_slice(text).map_err(|error| format!("tool is no JSON: {error}"))?;
    let Value::Object(mut told) = told else { return Err("tool is no object".to_owned()) };
    let description = match told.remove("description") {
        Some(Value::String(text)) if (1..=DESCRIPTION_BYTES_MAX).contains(&text.trim().len()) => text,
        _ => return Err(format!("tool has no description of 1 to {DESCRIPTION_BYTES_MAX} bytes")),
    };
    let input = told.remove("input").unwrap_or_else(|| serde_json::json!({ "type": "object" }));
    if let Some(why) = fault_of(&input) {
        return Err(format!("tool's input is no JSON schema of an object: {why}"));
    }
    let is_read_only = match told.remove("read_only") {
        None => false,
        Some(Value::Bool(is_so)) => is_so,
        Some(_) => return Err("tool's read_only is true or false".to_owned()),
    };
    match told.keys().next() {
        Some(other) => Err(format!("{other:?} means nothing in a tool")),
        None => Ok(Some(Tool { description, input, is_read_only })),
    }
}

/// What is wrong with the schema of a tool's events, as far as clients look at it: one that is none takes all
/// tools from some of them. `None`, if nothing is.
pub fn fault_of(schema: &Value) -> Option<&'static str> {
    let is_schema = |value: &Value| value.is_object() || value.is_boolean();
    let is_named = |value: &Value| value.as_object().is_some_and(|members| members.values().all(is_schema));
    let is_texts = |value: &Value| value.as_array().is_some_and(|items| items.iter().all(Value::is_string));
    if schema["type"] != "object" {
        return Some("its type is \"object\"");
    }
    if schema.get("properties").is_some_and(|value| !is_named(value)) {
        return Some("its properties are a table of schemas, like { place = { type = \"string\" } }");
    }
    if schema.get("required").is_some_and(|value| !is_texts(value)) {
        return Some("required is a list of names");
    }
    mirrors(schema).then_some("x-mcp-header is not for functions: what is told of them is in their events")
}

/// Whether it asks for something to be repeated in headers.
fn mirrors(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.contains_key("x-mcp-header") || members.values().any(mirrors),
        Value::Array(items) => items.iter().any(mirrors),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn what_is_said_of_a_tool_is_read_or_refused() {
        let read = |text: &str| {
            let mut pairs = Pairs::default();
            pairs.set("tool", text.as_bytes()).unwrap();
            super::read(&pairs)
        };
        let tool = read(
            r#"{"description": "Adds", "input": {"type": "object", "required": ["a"]}, "read_only": true}"#,
        );
        let tool = tool.unwrap().unwrap();
        assert_eq!((tool.description.as_str(), tool.is_read_only), ("Adds", true));
        assert_eq!(tool.input["required"][0], "a");
        assert_eq!(read(r#"{"description": "x"}"#).unwrap().unwrap().input["type"], "object");
        assert_eq!(super::read(&Pairs::default()), Ok(None));
        let long = format!(
            r#"{{"description": "x", "input": {{"type": "object", "title": "{}"}}}}"#,
            "x".repeat(TEXT_BYTES_MAX)
        );
        for (wrong, why) in [
            ("[", "no JSON"),
            ("[]", "no object"),
            ("{}", "no description"),
            (r#"{"description": " "}"#, "no description"),
            (r#"{"description": 1}"#, "no description"),
            (r#"{"description": "x", "input": {"type": "string"}}"#, "schema of an object"),
            (r#"{"description": "x", "input": 1}"#, "schema of an object"),
            (
                r#"{"description": "x", "input": {"type": "object", "properties": {"a": "string"}}}"#,
                "table of schemas",
            ),
            (r#"{"description": "x", "input": {"type": "object", "properties": []}}"#, "table of schemas"),
            (r#"{"description": "x", "input": {"type": "object", "required": "a"}}"#, "list of names"),
            (
                r#"{"description": "x", "input": {"type": "object", "properties": {"a": {"x-mcp-header": "A"}}}}"#,
                "x-mcp-header",
            ),
            (r#"{"description": "x", "read_only": 1}"#, "true or false"),
            (r#"{"description": "x", "icon": 1}"#, "means nothing"),
            (&long, "at most"),
        ] {
            assert!(read(wrong).unwrap_err().contains(why), "{wrong}");
        }
    }
}
