// SPDX-License-Identifier: Apache-2.0
//! What a manifest says of a workflow that is declared: its steps, as the JSON that nodes read
//! (`docs/spec/workflows.md`, section 7).

use serde_json::{Map, Value};
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::fault::Fault;
use super::fields;
use super::function::TIMEOUT_MS_MAX;
use super::reader::Reader;

/// Tables and lists within each other.
const DEPTH_MAX: usize = 32;
/// Fields of a function that mean something for it.
const FIELDS: [&str; 9] =
    ["name", "runtime", "timeout", "routes", "hosts", "public", "schedules", "async", "steps"];

/// Reads the steps and the result of a workflow into its declaration; what is wrong is noted.
pub(super) fn read(name: &str, table: &DeTable<'_>, reader: &mut Reader<'_>) -> Option<String> {
    for (key, _) in table {
        let field = key.get_ref().as_ref();
        if !FIELDS.contains(&field) && field != "result" {
            let message =
                format!("`{field}` means nothing for a workflow that is declared: nothing of its own is run");
            reader
                .faults
                .push(Fault::new(key.span(), message).hint("say it of the functions that its steps call"));
        }
    }
    let Some(steps) = table.get("steps") else {
        let place = table.get("runtime").map(Spanned::span).unwrap_or_default();
        let fault = Fault::new(place, format!("the workflow {name} has no steps"));
        let hint = format!("add a table [functions.{name}.steps.NAME] for each, with call = \"function\"");
        reader.faults.push(fault.hint(hint));
        return None;
    };
    let before = reader.faults.len();
    let steps_place = steps.span();
    let mut told = Map::new();
    let mut places = Vec::new();
    for (step, value) in reader.table(steps)? {
        places.push((step.get_ref().to_string(), step.span()));
        if let Some(read) = reader.table(value).and_then(|table| self::step(table, reader)) {
            told.insert(step.get_ref().to_string(), read);
        }
    }
    let mut declaration = Map::from_iter([("steps".to_owned(), Value::Object(told))]);
    let mut result_place = steps_place.clone();
    if let Some(value) = table.get("result") {
        result_place = value.span();
        declaration.insert("result".to_owned(), json(value, reader, 0)?);
    }
    if reader.faults.len() > before {
        return None;
    }
    let text = Value::Object(declaration).to_string();
    // What the node would say, with its place.
    if let Err(why) = node::check_workflow(text.as_bytes()) {
        let of_step = places.iter().find(|(step, _)| why.starts_with(&format!("step {step}: ")));
        let place = match of_step {
            Some((_, place)) => place.clone(),
            None if why.starts_with("result: ") => result_place,
            None => steps_place,
        };
        return reader.fault(place, why);
    }
    Some(text)
}

/// Notes what only a workflow that is declared has.
pub(super) fn refuse(table: &DeTable<'_>, reader: &mut Reader<'_>) {
    for (key, _) in table.iter().filter(|(key, _)| ["steps", "result"].contains(&key.get_ref().as_ref())) {
        let message = format!("only a workflow that is declared has `{}`", key.get_ref());
        reader
            .faults
            .push(Fault::new(key.span(), message).hint("remove it, or write runtime = \"workflow\""));
    }
}

/// One step, as nodes read it.
fn step(table: &DeTable<'_>, reader: &mut Reader<'_>) -> Option<Value> {
    let mut told = Map::new();
    for (key, value) in table {
        let (name, read) = match key.get_ref().as_ref() {
            "call" => ("call", reader.text(value).map(Value::from)),
            "with" => ("with", json(value, reader, 0)),
            "each" => ("each", json(value, reader, 0)),
            "when" => ("when", json(value, reader, 0)),
            "after" => {
                let names =
                    reader.texts(value).map(|names| names.into_iter().map(|(name, _)| name).collect());
                ("after", names)
            }
            "may-fail" => ("may_fail", reader.switch(value).map(Value::from)),
            "retries" => ("retries", reader.count(value, 0..=100).map(Value::from)),
            "retry-delay" => ("retry_delay_ms", reader.time_ms(value, 0..=TIMEOUT_MS_MAX).map(Value::from)),
            "timeout" => ("timeout_ms", reader.time_ms(value, 1..=TIMEOUT_MS_MAX).map(Value::from)),
            unknown => {
                reader.unknown(unknown, key.span(), "field", &fields::names(fields::STEP));
                continue;
            }
        };
        told.insert(name.to_owned(), read?);
    }
    Some(Value::Object(told))
}

/// A value of TOML as JSON, with the variables in its texts replaced.
pub(super) fn json(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>, depth: usize) -> Option<Value> {
    if depth > DEPTH_MAX {
        return reader
            .fault(value.span(), format!("tables within tables, more than {DEPTH_MAX} levels deep"));
    }
    match value.get_ref() {
        DeValue::String(_) => reader.text(value).map(Value::from),
        DeValue::Boolean(is_so) => Some((*is_so).into()),
        DeValue::Integer(digits) => match i64::from_str_radix(digits.as_str(), digits.radix()) {
            Ok(number) => Some(number.into()),
            Err(_) => reader.fault(value.span(), "expected is a number from -2^63 to 2^63 - 1"),
        },
        DeValue::Float(digits) => {
            let number = digits.as_str().parse().ok().and_then(serde_json::Number::from_f64);
            match number {
                Some(number) => Some(Value::Number(number)),
                None => reader.fault(value.span(), "no JSON has this number"),
            }
        }
        DeValue::Datetime(time) => Some(time.to_string().into()),
        DeValue::Array(items) => items.iter().map(|item| json(item, reader, depth + 1)).collect(),
        DeValue::Table(table) => {
            let mut members = Map::new();
            for (name, value) in table {
                members.insert(name.get_ref().to_string(), json(value, reader, depth + 1)?);
            }
            Some(Value::Object(members))
        }
    }
}
