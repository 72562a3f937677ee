// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use std::collections::BTreeSet;

use serde_json::Value;

use super::document;
use crate::router::{Verb, endpoints};

const METHODS: [&str; 4] = ["get", "post", "put", "delete"];

fn parsed() -> Value {
    serde_json::from_slice(&document("1.2.3")).unwrap()
}

/// Every object in the document, whatever it is.
fn walk(value: &Value, visit: &mut impl FnMut(&serde_json::Map<String, Value>)) {
    match value {
        Value::Object(members) => {
            visit(members);
            members.values().for_each(|member| walk(member, visit));
        }
        Value::Array(items) => items.iter().for_each(|item| walk(item, visit)),
        _ => {}
    }
}

#[test]
fn the_document_and_the_router_list_the_same_endpoints() {
    let document = parsed();
    let mut documented = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for method in methods.as_object().unwrap().keys() {
            assert!(METHODS.contains(&method.as_str()), "{path} {method}");
            documented.insert((path.clone(), method.clone()));
        }
    }
    let routed: BTreeSet<_> = endpoints()
        .iter()
        .flat_map(|endpoint| {
            let methods = match endpoint.verb {
                // Two stand for all.
                Verb::Any => vec!["get".to_owned(), "post".to_owned()],
                verb => vec![format!("{verb:?}").to_lowercase()],
            };
            methods.into_iter().map(|method| (endpoint.path.replace("{*", "{"), method))
        })
        .collect();
    assert_eq!(documented, routed);
}

#[test]
fn the_document_is_whole() {
    let document = parsed();
    assert!(document["openapi"].as_str().unwrap().starts_with("3.1."));
    assert_eq!(document["info"]["version"], "1.2.3");
    walk(&document, &mut |members| {
        if let Some(Value::String(target)) = members.get("$ref") {
            let pointer = target.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{target} leads nowhere");
        }
    });
    let mut operations = BTreeSet::new();
    for (path, methods) in document["paths"].as_object().unwrap() {
        for (method, operation) in methods.as_object().unwrap() {
            let id = operation["operationId"].as_str().unwrap();
            assert!(operations.insert(id.to_owned()), "{id} twice");
            assert!(operation["summary"].is_string() && operation["responses"]["default"].is_object());
            let described = operation["parameters"].to_string();
            for name in path.split(['{', '}']).skip(1).step_by(2) {
                let shared = [
                    "Handle",
                    "LabelName",
                    "FunctionName",
                    "FunctionPath",
                    "AliasName",
                    "SecretName",
                    "CallId",
                    "RunId",
                    "KeyId",
                    "DashboardFile",
                    "Runtime",
                ]
                .iter()
                .any(|component| {
                    described.contains(&format!("#/components/parameters/{component}"))
                        && document["components"]["parameters"][component]["name"] == name
                });
                assert!(shared, "{method} {path} does not describe {name}");
            }
        }
    }
}

#[test]
fn schemas_list_the_words_that_the_code_uses() {
    let document = parsed();
    let words = |schema: &str, pointer: &str| -> BTreeSet<String> {
        let list = document["components"]["schemas"][schema].pointer(pointer).unwrap().as_array().unwrap();
        list.iter().map(|word| word.as_str().unwrap().to_owned()).collect()
    };
    let codes = objects::FailureCode::ALL.map(|code| code.as_str().to_owned());
    assert_eq!(words("Failure", "/properties/code/enum"), BTreeSet::from(codes));
    let kinds = objects::Kind::ALL.map(|kind| kind.name().to_owned());
    assert_eq!(words("Kind", "/enum"), BTreeSet::from(kinds));
}
