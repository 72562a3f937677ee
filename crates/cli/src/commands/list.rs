// SPDX-License-Identifier: Apache-2.0
//! `sinew list`: the functions of a node.

use serde_json::Value;

use crate::calendar;
use crate::node_api::Node;
use crate::output::Output;
use crate::quantity::grouped;

const ROUTES_SHOWN_MAX: usize = 2;

pub(crate) async fn run(node: &mut Node, output: &Output) -> anyhow::Result<()> {
    let functions = node.functions().await?;
    if output.is_json() {
        return functions.iter().try_for_each(|function| output.json(function));
    }
    if functions.is_empty() && output.is_watched() {
        output.say("there are no functions; `sinew new NAME` writes one, `sinew deploy` deploys it");
        return Ok(());
    }
    let rows: Vec<_> = functions.iter().map(row).collect();
    let heads = [
        "NAME",
        "VERSION",
        "RUNTIME",
        "REQUESTS",
        "FAILURES",
        "COLD STARTS",
        "IDLE",
        "BUSY",
        "DEPLOYED",
        "URL",
        "ROUTES",
    ];
    output.table(&heads, &[1, 3, 4, 5, 6, 7], &rows)
}

/// The first of its hosts and routes, and how many there are more.
fn routes(function: &Value) -> String {
    let texts = |member: &str| function[member].as_array().into_iter().flatten().filter_map(Value::as_str);
    let routes: Vec<&str> = texts("hosts").chain(texts("routes")).collect();
    let shown = routes.iter().take(ROUTES_SHOWN_MAX).copied().collect::<Vec<_>>().join(", ");
    match routes.len().saturating_sub(ROUTES_SHOWN_MAX) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

fn row(function: &Value) -> Vec<String> {
    let text = |name: &str| function[name].as_str().unwrap_or("-").to_owned();
    let number = |value: &Value| value.as_u64().map_or("-".to_owned(), grouped);
    let instances = &function["instances"];
    vec![
        text("name"),
        number(&function["version"]),
        text("runtime"),
        number(&function["requests"]),
        number(&function["failures"]),
        number(&function["cold_starts"]),
        number(&instances["idle"]),
        number(&instances["busy"]),
        function["deployed_ms"].as_u64().map_or("-".to_owned(), |ms| calendar::date(ms / 1000)),
        text("url"),
        routes(function),
    ]
}
