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
    if input["type"] != "object" {
        return Err("tool's input is no JSON schema of an object: its type is \"object\"".to_owned());
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
            (r#"{"description": "x", "read_only": 1}"#, "true or false"),
            (r#"{"description": "x", "icon": 1}"#, "means nothing"),
            (&long, "at most"),
        ] {
            assert!(read(wrong).unwrap_err().contains(why), "{wrong}");
        }
    }
}
