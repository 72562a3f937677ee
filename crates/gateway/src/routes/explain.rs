// SPDX-License-Identifier: Apache-2.0
//! `GET /v1/explain/{handle}`: what a handle is, which steps its evaluation
//! took, and which computations made it.
//!
//! The backend knows steps and makers by handle; this file adds the
//! definitions (limits, procedure, arguments) of the first few, so that a
//! reader needs one round trip for a story.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use objects::{Application, Cost, Failure, Handle, Kind, Limits, Part, Selection, TreeView};
use serde_json::{Map, Value, json};
use store::{Remembered, Rule};

use super::evaluate::{failure_detail, handle_json};
use super::path_text;
use crate::backend::{ComesBy, Derivation, Transfer};
use crate::body::blocking;
use crate::problem::Problem;
use crate::receipts::{Inputs, Unissued};
use crate::router::Shared;
use crate::text::{parse_handle, place_word, rule_word};

/// Arguments of an application that an explanation lists.
const ARGUMENTS_MAX: usize = 64;
/// Steps and makers whose definitions an explanation repeats.
const DEFINITIONS_MAX: usize = 32;

pub(crate) async fn explain(
    State(shared): State<Arc<Shared>>,
    path: Result<Path<String>, PathRejection>,
) -> Result<Json<Value>, Problem> {
    let handle = parse_handle(&path_text(path)?)?;
    let blocking_shared = shared.clone();
    let told = blocking(move || tell(&blocking_shared, handle)).await?;
    let (mut story, failure) = told.map_err(|error| Problem::store(&error))?;
    if let Some(failure) = failure {
        let detail = failure_detail(&shared, &failure).await?;
        let failure = json!({
            "code": failure.code.as_str(),
            "application": failure.application.to_string(),
            "detail": detail,
            "deterministic": failure.code.is_deterministic(),
        });
        story.insert("failure".to_owned(), failure);
    }
    Ok(Json(Value::Object(story)))
}

/// Everything that reads the store. Blocks.
fn tell(shared: &Shared, handle: Handle) -> Result<(Map<String, Value>, Option<Failure>), store::Error> {
    let known = shared.backend.explain(handle)?;
    let mut story = Map::new();
    let mut tell = |name: &str, value: Value| story.insert(name.to_owned(), value);
    tell("handle", handle_json(known.handle));
    tell("kind", handle.kind().name().into());
    tell("size", handle.size().into());
    tell("place", place_word(known.place).into());
    if let Some(definition) = definition(shared, handle)? {
        tell("definition", definition);
    }
    tell("steps", steps(shared, &known.steps)?);
    tell("made_by", steps(shared, &known.made_by)?);
    if let Some(derivation) = known.derivation {
        tell("recipe", recipe(&derivation));
    }
    if let Some(transfer) = known.transfer {
        tell("transfer", transfer_json(transfer));
    }
    let compilation = known.compilation.into_iter().map(|(what, value)| (what, Value::String(value)));
    tell("compilation", Value::Object(compilation.collect()));
    Ok((story, failure(shared, handle)?))
}

fn transfer_json(transfer: Transfer) -> Value {
    let nanos = transfer.nanos;
    match transfer.comes_by {
        ComesBy::Nothing => json!({"nanos": nanos, "comes_by": "nothing"}),
        ComesBy::Tier => json!({"nanos": nanos, "comes_by": "tier"}),
        ComesBy::Recipe { nanos: made } => {
            json!({"nanos": nanos, "comes_by": "recipe", "recipe_nanos": made})
        }
    }
}

fn recipe(derivation: &Derivation) -> Value {
    let Derivation { recipe, is_dropped, nanos, depth, stays } = derivation;
    json!({
        "application": recipe.to_string(),
        "dropped": is_dropped,
        "nanos": nanos,
        "depth": depth,
        "may_be_dropped": stays.is_none(),
        "stays_because": stays,
    })
}

fn failure(shared: &Shared, handle: Handle) -> Result<Option<Failure>, store::Error> {
    if !handle.is_failure() {
        return Ok(None);
    }
    let tree = shared.backend.get(handle.plain_tree())?;
    Ok(tree.and_then(|tree| Failure::from_tree(tree.as_tree()).ok()))
}

fn steps(shared: &Shared, steps: &[Remembered]) -> Result<Value, store::Error> {
    let mut told = Vec::with_capacity(steps.len());
    let mut inputs = Inputs::new(&*shared.backend);
    for (at, Remembered { key, record, was_hit }) in steps.iter().enumerate() {
        let mut step = json!({
            "handle": key.to_string(),
            "rule": rule_word(record.rule),
            "result": record.result.to_string(),
            "nanos": record.nanos,
            "fuel": record.fuel,
            "memo_hit": was_hit,
        });
        if at < DEFINITIONS_MAX
            && let Some(definition) = definition(shared, *key)?
        {
            step["definition"] = definition;
            if let Some(cost) = up_front(&mut inputs, *key, record.rule)? {
                step["inputs_bytes"] = cost.inputs_bytes.into();
                step["reserved_bytes"] = cost.reserved_bytes.into();
            }
        }
        told.push(step);
    }
    Ok(Value::Array(told))
}

/// What an application cost before it ran, as its receipt would say. `None` for what is
/// none, and where its inputs are not here or too many to tell.
fn up_front(inputs: &mut Inputs<'_>, key: Handle, rule: Rule) -> Result<Option<Cost>, store::Error> {
    if rule != Rule::Apply || key.kind() != Kind::Application {
        return Ok(None);
    }
    match inputs.up_front(key) {
        Ok(cost) => Ok(Some(cost)),
        Err(Unissued::Refused(_)) => Ok(None),
        Err(Unissued::Failed(error)) => Err(error),
    }
}

/// What a thunk or encode would do. `None` for values, and for thunks whose
/// tree is not here or has the wrong shape.
fn definition(shared: &Shared, handle: Handle) -> Result<Option<Value>, store::Error> {
    let Some(thunk) = handle.thunk() else { return Ok(None) };
    if thunk.kind() == Kind::Identification {
        return Ok(Some(json!({"type": "identification", "of": thunk.definition().to_string()})));
    }
    let Some(object) = shared.backend.get(thunk.plain_tree())? else { return Ok(None) };
    Ok(match thunk.kind() {
        Kind::Selection => Selection::from_tree(object.as_tree()).ok().map(|selection| selected(&selection)),
        _ => applied(object.as_tree()),
    })
}

fn selected(selection: &Selection) -> Value {
    let target = selection.target.to_string();
    match selection.part {
        Part::Element(index) => json!({"type": "selection", "target": target, "index": index}),
        Part::Range { begin, end } => {
            json!({"type": "selection", "target": target, "begin": begin, "end": end})
        }
    }
}

/// An application before its encodes are replaced: its procedure may still be
/// a computation, and its limits, in a malformed one, anything.
fn applied(tree: TreeView<'_>) -> Option<Value> {
    let limits = tree.get(objects::LIMITS_INDEX)?;
    let procedure = tree.get(objects::PROCEDURE_INDEX)?;
    let all = tree.iter().skip(objects::ARGUMENTS_START);
    let total = all.len();
    let arguments: Vec<Value> = all.take(ARGUMENTS_MAX).map(handle_json).collect();
    Some(json!({
        "type": "application",
        "limits": Limits::from_handle(limits).map_or_else(|_| handle_json(limits), |limits| limits_json(&limits)),
        "procedure": procedure.to_string(),
        "arguments": arguments,
        "arguments_total": total,
        "well_formed": Application::from_tree(tree).is_ok(),
    }))
}

fn limits_json(limits: &Limits) -> Value {
    json!({
        "memory_bytes": limits.memory_bytes,
        "fuel": limits.fuel,
        "output_size_hint": limits.output_size_hint,
        "fan_out_hint": limits.fan_out_hint,
    })
}
