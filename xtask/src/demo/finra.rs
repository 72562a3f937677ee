// SPDX-License-Identifier: Apache-2.0
//! A workflow whose steps are given the same hundred thousand objects: mapped where they were made, and sent.

use std::time::{Duration, Instant};

use anyhow::ensure;

use crate::node::Node;
use crate::progress::{note, seconds, step};
use crate::{layout, process};

const SOURCE: &str = include_str!("finra.py");
const EVENT: &str = r#"{"trades": 100000, "rules": 40}"#;
/// By how they hand values over.
const WAYS: [(&str, &str); 2] = [("map", "mapped"), ("send", "sent")];

/// Runs it both ways, and compares what comes of it.
pub(super) fn run(node: &Node) -> anyhow::Result<()> {
    println!();
    if process::output(process::command("id").arg("-u"))? != "0" || !super::has_interpreter("python") {
        note("no workflow: it takes Python 3.11 and the rights of root".to_owned());
        return Ok(());
    }
    let folder = layout::demo().join("finra");
    layout::remove(&folder)?;
    std::fs::create_dir_all(&folder)?;
    std::fs::write(folder.join("main.py"), SOURCE)?;
    let manifest = WAYS.map(|(way, _)| {
        format!(
            "[functions.finra-{way}]\nruntime = \"python\"\nhandler = \"main.finra\"\nworkflow = true\n\
             values = \"{way}\"\nmemory = \"512MiB\"\nsource = \"main.py\"\n\n"
        )
    });
    std::fs::write(folder.join("sinew.toml"), manifest.concat())?;
    step("deploying a workflow: 100,000 trades, 40 rules", || {
        process::output(node.sinew().arg("deploy").arg(&folder)).map(drop)
    })?;
    let mut found = Vec::new();
    for (way, told) in WAYS {
        // Instances are there the second time.
        timed(node, way)?;
        let (said, took) = step(&format!("FINRA, values {told}"), || timed(node, way))?;
        found.push((told, said, took));
    }
    ensure!(found[0].1 == found[1].1, "mapped values gave {}, sent ones {}", found[0].1, found[1].1);
    for (told, said, took) in found {
        println!("{:>12}  values {told}: {said}", seconds(took));
    }
    Ok(())
}

fn timed(node: &Node, way: &str) -> anyhow::Result<(String, Duration)> {
    let begun = Instant::now();
    let function = format!("finra-{way}");
    let said = process::output(node.sinew().args(["invoke", function.as_str(), "-d", EVENT]))?;
    Ok((said, begun.elapsed()))
}
