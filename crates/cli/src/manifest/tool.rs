// SPDX-License-Identifier: Apache-2.0
//! What agents are told of a function: `tool`, a text or a table.

use serde_json::{Map, Value, json};
use toml::Spanned;
use toml::de::DeValue;

use super::fault::Fault;
use super::fields;
use super::reader::Reader;
use super::workflow::json as json_of;

/// What the node takes.
const DESCRIPTION_BYTES_MAX: usize = 4 << 10;
const TEXT_BYTES_MAX: usize = 32 << 10;

/// As the JSON that nodes read.
pub(super) fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<String> {
    if matches!(value.get_ref(), DeValue::String(_)) {
        return Some(json!({ "description": description(value, reader)? }).to_string());
    }
    let mut told = Map::new();
    let table = reader.table(value)?;
    if !table.contains_key("description") {
        let hint = "description = \"What it does, and when to use it\"";
        reader
            .faults
            .push(Fault::new(value.span(), "a tool has a description, by which it is chosen").hint(hint));
        return None;
    }
    for (key, value) in table {
        match key.get_ref().as_ref() {
            "description" => _ = told.insert("description".to_owned(), description(value, reader)?.into()),
            "input" => _ = told.insert("input".to_owned(), input(value, reader)?),
            "read-only" => {
                if reader.switch(value)? {
                    told.insert("read_only".to_owned(), true.into());
                }
            }
            unknown => reader.unknown(unknown, key.span(), "field", &fields::names(fields::TOOL)),
        }
    }
    let text = Value::Object(told).to_string();
    if text.len() > TEXT_BYTES_MAX {
        return reader
            .fault(value.span(), format!("a tool is told with at most {TEXT_BYTES_MAX} bytes of JSON"));
    }
    Some(text)
}

fn description(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<String> {
    let text = reader.text(value)?;
    if (1..=DESCRIPTION_BYTES_MAX).contains(&text.trim().len()) {
        return Some(text.trim().to_owned());
    }
    reader.fault(value.span(), format!("a description has 1 to {DESCRIPTION_BYTES_MAX} bytes"))
}

/// A JSON schema of an object. `type` may be left out.
fn input(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Value> {
    reader.table(value)?;
    let mut schema = json_of(value, reader, 0)?;
    let members = schema.as_object_mut()?;
    if !members.contains_key("type") {
        members.insert("type".to_owned(), "object".into());
    }
    let Some(why) = node::fault_of_tool_input(&schema) else { return Some(schema) };
    let hint = "describe the members of the event: { properties = { place = { type = \"string\" } }, required = [\"place\"] }";
    reader.faults.push(Fault::new(value.span(), format!("this is no schema of an event: {why}")).hint(hint));
    None
}
