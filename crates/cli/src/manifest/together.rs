// SPDX-License-Identifier: Apache-2.0
//! Groups of functions that call each other within one instance: what they must have
//! in common, for they are one process there.

use std::ops::Range;

use toml::Spanned;
use toml::de::DeValue;

use super::fault::Fault;
use super::function::{Function, Runtime, is_function_name};
use super::reader::Reader;

/// Functions of one group.
const TOGETHER_MAX: usize = 64;

/// The group that a function is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Together {
    pub(crate) group: String,
    /// Where that is said.
    place: Range<usize>,
}

/// The name of a group, which is written as those of functions are.
pub(super) fn read(value: &Spanned<DeValue<'_>>, reader: &mut Reader<'_>) -> Option<Together> {
    let (group, place) = (reader.text(value)?, value.span());
    if is_function_name(&group) {
        return Some(Together { group, place });
    }
    let message = format!("`{}` cannot be a group's name", group.escape_debug());
    let hint = "names have 1 to 63 characters of a-z, 0-9 and -, and begin with a letter";
    reader.faults.push(Fault::new(place, message).hint(hint));
    None
}

/// What is wrong with the groups of a manifest.
pub(super) fn check(functions: &[Function]) -> Vec<Fault> {
    let mut faults = Vec::new();
    // A node keeps as many in mind for an instance.
    let grouped: Vec<(&Function, &Together)> =
        functions.iter().filter_map(|function| Some((function, function.together.as_ref()?))).collect();
    for (function, together) in &grouped {
        if let Some((why, hint)) = alone(function) {
            faults.push(Fault::new(together.place.clone(), why).hint(hint));
        }
        let mut others =
            grouped.iter().filter(|(other, its)| its.group == together.group && other.name != function.name);
        if others.clone().count() >= TOGETHER_MAX {
            let message =
                format!("there are more than {TOGETHER_MAX} functions in the group `{}`", together.group);
            faults.push(Fault::new(together.place.clone(), message).hint("put them into several groups"));
            continue;
        }
        match others.next() {
            None => {
                let message = format!("{} is alone in the group `{}`", function.name, together.group);
                let hint = "give the functions that it calls the same `together`, or leave it out";
                faults.push(Fault::new(together.place.clone(), message).hint(hint));
            }
            // Each is compared with the first one.
            Some((first, _)) => {
                if let Some(what) =
                    difference(first, function).filter(|_| is_after(function, first, functions))
                {
                    let message = format!(
                        "{} is together with {}, and has another `{what}`",
                        function.name, first.name
                    );
                    let hint = "functions that are together are one process: give both the same, or leave `together` out of one";
                    faults.push(Fault::new(together.place.clone(), message).hint(hint));
                }
            }
        }
    }
    faults
}

fn is_after(function: &Function, first: &Function, functions: &[Function]) -> bool {
    let place = |wanted: &Function| functions.iter().position(|one| one.name == wanted.name);
    place(function) > place(first)
}

/// Why a function can be together with no other one.
fn alone(function: &Function) -> Option<(String, &'static str)> {
    let name = &function.name;
    if !matches!(function.runtime, Runtime::Python | Runtime::Node) {
        let runtime = function.runtime.name();
        return Some((
            format!(
                "{name} is a {runtime} function, and those that are together are written in Python or Node"
            ),
            "remove `together`",
        ));
    }
    if function.is_workflow || function.streams_body || function.pure {
        return Some((
            format!(
                "{name} is a workflow, is pure, or takes bodies while they come, and is called by the node only"
            ),
            "remove `together`, or `workflow`, `pure` and `body`",
        ));
    }
    if function.runtime == Runtime::Python && function.requests_per_instance > Some(1) {
        return Some((
            format!("{name} serves several requests at once, and Python functions that are together do not"),
            "remove `together`, or `requests-per-instance`",
        ));
    }
    None
}

/// The first field that two functions of one group must have in common, and do not.
fn difference(one: &Function, other: &Function) -> Option<&'static str> {
    [
        ("runtime", one.runtime == other.runtime),
        ("source", one.source == other.source),
        ("build", one.build == other.build),
        ("include", one.include == other.include),
        ("exclude", one.exclude == other.exclude),
        ("layers", one.layers == other.layers),
        ("requirements", one.has_requirements == other.has_requirements),
        ("environment", one.environment == other.environment),
        ("secrets", one.secrets == other.secrets),
        ("allow-hosts", one.allow_hosts == other.allow_hosts),
    ]
    .into_iter()
    .find_map(|(field, is_same)| (!is_same).then_some(field))
}
