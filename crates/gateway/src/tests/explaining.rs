// SPDX-License-Identifier: Apache-2.0
//! Where a handle comes from.

use objects::{FailureCode, Handle, Part, Selection};
use serde_json::json;

use super::House;

#[tokio::test]
async fn an_application_is_told_with_its_parts() {
    let house = House::new();
    let thunk = house.fake.application(b"argument");
    let story = house.get(&format!("/v1/explain/{}", thunk.strict().unwrap())).await.json();
    assert_eq!((&story["kind"], &story["place"]), (&"strict".into(), &"memory".into()));
    let definition = json!({
        "type": "application",
        "limits": {"memory_bytes": 64 << 20, "fuel": 0, "output_size_hint": 0, "fan_out_hint": 0},
        "procedure": Handle::blob(b"procedure").to_string(),
        "arguments": [Handle::blob(b"argument").to_string()],
        "arguments_total": 1,
        "well_formed": true,
    });
    assert_eq!(story["definition"], definition);
    let step = &story["made_by"][0];
    assert_eq!((&step["rule"], &step["nanos"], &step["fuel"]), (&"apply".into(), &1500.into(), &42.into()));
    assert_eq!(step["definition"], definition);
    assert_eq!((&story["steps"][0]["memo_hit"], &step["memo_hit"]), (&false.into(), &true.into()));
    assert_eq!(story["compilation"], json!({"compiler": "fake"}));
    // What the backend has decided, and nothing that is worked out here.
    assert_eq!(story["transfer"], json!({"nanos": 9000, "comes_by": "recipe", "recipe_nanos": 2500}));
}

#[tokio::test]
async fn selections_identifications_failures_and_values() {
    let house = House::new();
    let target = Handle::u64(5);
    let part = Part::Range { begin: 1, end: 3 };
    let tree = Selection { target, part }.to_tree();
    let selection = house.fake.store.put_tree(tree.view()).unwrap().selection().unwrap();
    let story = house.get(&format!("/v1/explain/{selection}")).await.json();
    let expected = json!({"type": "selection", "target": target.to_string(), "begin": 1, "end": 3});
    assert_eq!(story["definition"], expected);
    let identification = target.identification().unwrap();
    let story = house.get(&format!("/v1/explain/{identification}")).await.json();
    assert_eq!(story["definition"], json!({"type": "identification", "of": target.to_string()}));
    let (failure, _) = house.fake.failure(FailureCode::Fuel, selection);
    let story = house.get(&format!("/v1/explain/{failure}")).await.json();
    assert_eq!((&story["failure"]["code"], &story["failure"]["detail"]), (&"fuel".into(), &"why".into()));
    let story = house.get("/v1/explain/lit-").await.json();
    assert!(story["definition"].is_null() && story["failure"].is_null());
    // Its tree is not here: still a story.
    let absent = Handle::tree(target.as_bytes()).unwrap().application().unwrap();
    assert!(house.get(&format!("/v1/explain/{absent}")).await.json()["definition"].is_null());
    house.get("/v1/explain/what").await.problem(400);
}
