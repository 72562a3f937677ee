// SPDX-License-Identifier: Apache-2.0
#![allow(clippy::unwrap_used)]

use serde_json::json;

use super::*;

#[test]
fn the_story_of_a_call() {
    let definition = json!({
        "type": "application", "limits": {"memory_bytes": 64 << 20, "fuel": 1000}, "procedure": "blob-p",
        "arguments": ["lit-03", "lit-04"], "arguments_total": 5, "well_formed": true,
    });
    let story = json!({
        "handle": "app-x", "kind": "application", "size": 7, "place": "disk", "definition": definition,
        "steps": [{"handle": "app-x", "rule": "apply", "result": "lit-07", "nanos": 1500, "fuel": 12, "memo_hit": true, "definition": definition}],
        "made_by": [], "compilation": {},
    });
    let text = tell(&story);
    for part in [
        "app-x is an application",
        "procedure  blob-p",
        "limits     64MiB memory, 1,000 fuel",
        "argument 1 lit-04",
        "and 3 more arguments",
        "data       on this node's disk",
        "apply    app-x",
        "→ lit-07 (1.50 µs, 12 fuel, a memo hit since)",
        "Evaluated in 1 remembered step; the longest took 1.50 µs:",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    assert_eq!(text.matches("argument 1").count(), 1, "nothing is told twice\n{text}");
}

#[test]
fn values_failures_and_the_unknown() {
    let mut story = json!({
        "handle": "lit-07", "kind": "blob", "size": 1, "place": "literal", "steps": [],
        "made_by": [{"handle": "app-x", "rule": "apply", "result": "lit-07", "nanos": 5, "fuel": 0}],
        "compilation": {"compiler": "one"},
    });
    let text = tell(&story);
    assert!(text.contains("Made by 1 computation:") && text.contains("compiler   one"), "{text}");
    story["made_by"] = json!([]);
    assert!(tell(&story).contains("it was put, or its maker is no longer remembered"));
    story["failure"] =
        json!({"code": "trap", "application": "app-y", "detail": "why", "deterministic": true});
    let text = tell(&story);
    assert!(text.contains("because    why") && text.contains("every time"), "{text}");
    assert_eq!((counted(1, "entry"), counted(2, "entry")), ("1 entry".into(), "2 entries".into()));
    // How it comes is told as the node says it, and not worked out.
    story["place"] = json!("tier");
    story["transfer"] = json!({"nanos": 1_000, "comes_by": "recipe", "recipe_nanos": 2_500});
    let text = tell(&story);
    assert!(
        text.contains("tier       has it; to bring it takes 1.00 µs") && text.contains("takes 2.50 µs"),
        "{text}"
    );
    story["transfer"] = json!({"nanos": 1_000, "comes_by": "tier"});
    assert!(tell(&story).contains("; that is what who reads it waits for"));
    // An answer of another version is told as far as it is understood.
    assert!(!tell(&json!({})).is_empty());
}
