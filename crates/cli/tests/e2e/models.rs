// SPDX-License-Identifier: Apache-2.0
//! Models of LightGBM as values of steps: where the library has made them, if it was loaded before instances were forked.

use std::path::Path;

use serde_json::{Value, json};

use super::functions::is_root;
use super::requirements::reaches;
use super::{Node, home};

const MAIN: &str = r#"
import __main__
import lightgbm
import numpy
from sinew import function, isolated, workflow

SETTINGS = {"objective": "binary", "num_leaves": 31, "num_threads": 1, "min_data_in_leaf": 2, "verbose": -1}

def samples():
    data = numpy.random.default_rng(11).random((400, 8))
    return data, (data[:, :3].sum(axis=1) > 1.5).astype(int)

@function
def trained(trees):
    return lightgbm.train(SETTINGS, lightgbm.Dataset(*samples()), trees)

@function
def seen(model):
    """Whether another process has made it, how many trees it has, and what it says."""
    known = __main__.libraries.get("lightgbm")
    is_mapped = known is not None and known.core.library_is_mapped(model._handle.value) == 1
    return [is_mapped, model.num_trees(), round(float(model.predict(samples()[0]).sum()), 6), len(model.model_to_string())]

@function
def trained_on(model):
    """A model that begins with what this one has; that one is others', too."""
    model.set_leaf_output(0, 0, 1e6)
    return lightgbm.train(SETTINGS, lightgbm.Dataset(*samples()), 5, init_model=model)

@function
def same(model):
    return model

@function
def kept():
    return KEPT

KEPT = lightgbm.train(SETTINGS, lightgbm.Dataset(*samples()), 40)

@workflow
def handler(event):
    model = trained(event["trees"])
    first, other = seen(model), trained_on(model)
    more = seen(other)
    return {"first": first, "more": more, "again": seen(model), "handed on": seen(same(model)), "isolated": seen(isolated(model)),
            "kept": seen(kept()), "result": model.result().num_trees()}
"#;

fn deployed(home: &Path, imports: &str) -> Option<Node> {
    if !is_root() || !reaches("python3", &["-m", "pip", "index", "versions", "lightgbm"]) {
        return None;
    }
    let node = Node::start(home);
    let settings = format!("memory = \"208MiB\"\nworkflow = true\n{imports}");
    let folder = node.python("models", &settings, MAIN);
    std::fs::write(folder.join("requirements.txt"), "lightgbm==4.7.0\nnumpy==2.2.6\nscipy==1.17.1\n")
        .unwrap();
    node.install(&folder).unwrap();
    Some(node)
}

fn told(node: &Node, trees: u64) -> Value {
    let told = node.ok(&["invoke", "models", "-d", &json!({ "trees": trees }).to_string()]);
    serde_json::from_str(&told).unwrap()
}

#[test]
fn models_are_handed_over_where_their_library_has_made_them() {
    let home = home();
    let Some(node) = deployed(home.path(), "imports = [\"lightgbm\"]\n") else { return };
    for _ in 0..3 {
        let told = told(&node, 100);
        let first = &told["first"];
        assert_eq!(*first, json!([true, 100, first[2], first[3]]), "{told}");
        assert_eq!(told["again"], *first, "what another step has changed is that step's: {told}");
        // It is one of another call's by then, and is pickled.
        let sent = json!([false, 100, first[2], first[3]]);
        assert_eq!((&told["handed on"], &told["isolated"]), (&sent, &sent), "{told}");
        assert_eq!((&told["more"][0], &told["more"][1]), (&json!(true), &json!(105)), "{told}");
        assert_ne!(told["more"][2], first[2], "it has begun with what was changed: {told}");
        let kept = (&told["kept"][0], &told["kept"][1], &told["result"]);
        assert_eq!(kept, (&json!(false), &json!(40), &json!(100)), "{told}");
    }
}

#[test]
fn models_of_a_library_that_instances_load_themselves_are_pickled() {
    let home = home();
    let Some(node) = deployed(home.path(), "") else { return };
    let told = told(&node, 60);
    let first = &told["first"];
    assert_eq!(*first, json!([false, 60, first[2], first[3]]), "{told}");
    assert_eq!((&told["again"], &told["handed on"], &told["result"]), (first, first, &json!(60)), "{told}");
}
