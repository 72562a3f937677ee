// SPDX-License-Identifier: Apache-2.0
//! Workflows that are declared (`docs/spec/workflows.md`, section 7): steps that are calls of functions of the node,
//! in whatever language, and what each is given of the others' answers. No instance waits for them:
//! the gateway goes from step to step itself.

mod conduct;
mod given;
mod template;

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::order::StepOptions;
use template::{Root, Scope, Template, is_name};

/// Bytes of a declaration.
const DECLARATION_BYTES_MAX: usize = 1 << 20;
/// Steps that one declaration names.
const STEPS_MAX: usize = 250;
const NAME_LEN_MAX: usize = 63;
/// Names that stand for something else.
const RESERVED: [&str; 3] = ["event", "item", "index"];

/// A workflow as it is written.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Told {
    steps: BTreeMap<String, StepTold>,
    result: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct StepTold {
    call: Option<String>,
    with: Option<Value>,
    each: Option<Value>,
    when: Option<Value>,
    #[serde(default)]
    after: Vec<String>,
    #[serde(default)]
    may_fail: bool,
    #[serde(default)]
    retries: u32,
    retry_delay_ms: Option<u64>,
    timeout_ms: Option<u64>,
}

/// A workflow that is declared, whole and checked.
#[derive(Debug)]
pub struct Declaration {
    /// In an order in which each comes after those that it needs.
    steps: Vec<Step>,
    result: Template,
}

/// What is to become a step, or one for each of many.
#[derive(Debug)]
struct Step {
    name: String,
    /// The function, as it stands after `/function/`.
    call: String,
    with: Template,
    each: Option<Template>,
    when: Option<Template>,
    /// Those that must have ended, by their places.
    needs: Vec<usize>,
    /// Its value is null if it fails.
    may_fail: bool,
    options: StepOptions,
}

impl Declaration {
    /// Reads and checks a declaration in JSON.
    ///
    /// # Errors
    /// What is wrong with it, for people; what is wrong with a step begins with `step NAME: `.
    pub fn read(text: &[u8]) -> Result<Self, String> {
        if text.len() > DECLARATION_BYTES_MAX {
            return Err(format!("the declaration has more than {DECLARATION_BYTES_MAX} bytes"));
        }
        let Told { steps, result } = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if steps.is_empty() || steps.len() > STEPS_MAX {
            return Err(format!(
                "a declared workflow has 1 to {STEPS_MAX} steps, and this one {}",
                steps.len()
            ));
        }
        // Places are those in the order of names until there is a better one.
        let names: Vec<String> = steps.keys().cloned().collect();
        let read = steps.into_iter().map(|(name, told)| {
            let at = format!("step {name}: ");
            Step::read(name, told, &names).map_err(|why| at + &why)
        });
        let read = read.collect::<Result<Vec<_>, _>>()?;
        let result = match result {
            Some(result) => Template::read(&result, &|name| root(name, &names, false)),
            None => Template::read(&what_nobody_needs(&read), &|name| root(name, &names, false)),
        };
        let result = result.map_err(|why| format!("result: {why}"))?;
        let order = in_order(&read)?;
        Ok(Self { steps: read, result }.placed(&order))
    }

    /// The same with its steps in this order.
    fn placed(self, order: &[usize]) -> Self {
        let mut places = vec![0; order.len()];
        for (to, from) in order.iter().enumerate() {
            places[*from] = to;
        }
        let mut steps: Vec<(usize, Step)> = self.steps.into_iter().enumerate().collect();
        steps.sort_by_key(|(from, _)| places[*from]);
        let steps = steps.into_iter().map(|(_, step)| step.placed(&places)).collect();
        Self { steps, result: self.result.placed(&places) }
    }

    /// The function that a step of this name calls.
    pub(super) fn call(&self, name: &str) -> Option<&str> {
        self.step(name).map(|step| step.call.as_str())
    }

    fn step(&self, name: &str) -> Option<&Step> {
        self.steps.iter().find(|step| step.name == name)
    }
}

impl Step {
    fn read(name: String, told: StepTold, names: &[String]) -> Result<Self, String> {
        if !is_name(&name) || name.len() > NAME_LEN_MAX || RESERVED.contains(&name.as_str()) {
            let why = format!(
                "a step's name has 1 to {NAME_LEN_MAX} letters, digits, _ and -, begins with a letter"
            );
            return Err(format!("{why}, and is not {}", RESERVED.join(", ")));
        }
        let call = told.call.unwrap_or_else(|| name.clone());
        if !is_function(&call) {
            return Err(format!("call: {call:?} is no function's name"));
        }
        let is_each = told.each.is_some();
        let template = |field: &str, value: &Value, has_item: bool| {
            Template::read(value, &|name| root(name, names, has_item))
                .map_err(|why| format!("{field}: {why}"))
        };
        let optional = |field: &str, value: Option<Value>, has_item: bool| {
            value.map(|value| template(field, &value, has_item)).transpose()
        };
        let each = optional("each", told.each, false)?;
        let when = optional("when", told.when, false)?.map(Template::optional);
        let usual = Value::from(if is_each { "{{ item }}" } else { "{{ event }}" });
        let with = template("with", &told.with.unwrap_or(usual), is_each)?;
        let mut needs = Vec::new();
        for name in &told.after {
            match root(name, names, false) {
                Ok(Root::Step(at)) => needs.push(at),
                Ok(_) => return Err(format!("after: {name:?} is no step")),
                Err(why) => return Err(format!("after: {why}")),
            }
        }
        for template in [Some(&with), each.as_ref(), when.as_ref()].into_iter().flatten() {
            template.visit(&mut |reference| {
                if let Root::Step(at) = reference.root {
                    needs.push(at);
                }
            });
        }
        needs.sort_unstable();
        needs.dedup();
        let options = StepOptions::of_declared(told.retries, told.retry_delay_ms, told.timeout_ms)?;
        Ok(Self { name, call, with, each, when, needs, may_fail: told.may_fail, options })
    }

    fn placed(self, places: &[usize]) -> Self {
        Self {
            with: self.with.placed(places),
            each: self.each.map(|each| each.placed(places)),
            when: self.when.map(|when| when.placed(places)),
            needs: self.needs.into_iter().map(|need| places[need]).collect(),
            ..self
        }
    }
}

/// What a name stands for in a reference.
fn root(name: &str, names: &[String], has_item: bool) -> Result<Root, String> {
    match name {
        "event" => return Ok(Root::Event),
        "item" if has_item => return Ok(Root::Item),
        "index" if has_item => return Ok(Root::Index),
        "item" | "index" => {
            return Err(format!("there is no `{name}` here: it is for `with`, beside `each`"));
        }
        _ => {}
    }
    if let Ok(at) = names.binary_search_by(|known| known.as_str().cmp(name)) {
        return Ok(Root::Step(at));
    }
    let known = names.iter().map(String::as_str).chain(["event"]);
    Err(match objects::closest(name, known.clone()) {
        Some(near) => format!("there is no step `{name}`; did you mean `{near}`?"),
        None => format!("there is no step `{name}`; there are {}", known.collect::<Vec<_>>().join(", ")),
    })
}

/// The result of a workflow that says none: what the step returns that no other needs, or what each such returns.
fn what_nobody_needs(steps: &[Step]) -> Value {
    let is_needed = |at: usize| steps.iter().any(|step| step.needs.contains(&at));
    let last = steps.iter().enumerate().filter(|(at, _)| !is_needed(*at));
    let mut last: Vec<(String, Value)> =
        last.map(|(_, step)| (step.name.clone(), format!("{{{{ {} }}}}", step.name).into())).collect();
    match last.len() {
        1 => last.pop().map_or(Value::Null, |(_, value)| value),
        _ => Value::Object(last.into_iter().collect()),
    }
}

/// Places of steps, each after those that it needs.
fn in_order(steps: &[Step]) -> Result<Vec<usize>, String> {
    let mut order = Vec::with_capacity(steps.len());
    let mut is_placed = vec![false; steps.len()];
    while order.len() < steps.len() {
        let is_next = |at: &usize| !is_placed[*at] && steps[*at].needs.iter().all(|need| is_placed[*need]);
        let next: Vec<usize> = (0..steps.len()).filter(is_next).collect();
        if next.is_empty() {
            let waiting = steps.iter().zip(&is_placed).filter(|(_, is_placed)| !**is_placed);
            let names: Vec<&str> = waiting.map(|(step, _)| step.name.as_str()).collect();
            return Err(format!("steps wait for each other, or for one that does: {}", names.join(", ")));
        }
        for at in next {
            is_placed[at] = true;
            order.push(at);
        }
    }
    Ok(order)
}

/// A function's name, or with an alias or a version's number behind it.
fn is_function(name: &str) -> bool {
    let (name, qualifier) = name.split_once(':').map_or((name, None), |(name, rest)| (name, Some(rest)));
    let is_word = |word: &str| {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        !word.is_empty() && word.len() <= NAME_LEN_MAX && word.bytes().all(allowed)
    };
    is_word(name) && qualifier.is_none_or(is_word)
}

#[cfg(test)]
mod tests;
