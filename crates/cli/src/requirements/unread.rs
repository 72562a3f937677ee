// SPDX-License-Identifier: Apache-2.0
//! Files that name packages, and from which nothing is installed. Whoever has them
//! would else find out when a module is missing.

use std::path::Path;

use serde_json::Value;
use toml::de::{DeTable, DeValue};

use super::{FILE_BYTES_MAX, NODE_FILES, PYTHON_FILE};
use crate::deployment::read_text;
use crate::manifest::{Function, Runtime};

/// Names that are shown.
const SHOWN_MAX: usize = 4;
/// What else has the versions of packages of Node, and what makes the file of it that is read.
const OTHER_LOCKS: [&str; 3] = ["yarn.lock", "pnpm-lock.yaml", "bun.lock"];

/// What people are to be told of a source whose packages are not installed; nothing if there are none, or they lie in it.
pub(crate) fn told(function: &Function, source: &Path) -> Option<String> {
    // What is in a layer may be all that it needs.
    if !function.has_requirements || !function.layers.is_empty() {
        return None;
    }
    let (file, names, advice) = match function.runtime {
        Runtime::Python if !source.join(PYTHON_FILE).exists() => {
            let names = python_names(source)?;
            let advice = match () {
                () if source.join("uv.lock").exists() => {
                    "`uv export --no-dev -o requirements.txt` writes them there"
                }
                () if source.join("poetry.lock").exists() => {
                    "`poetry export -o requirements.txt` writes them there"
                }
                () => "write them into requirements.txt",
            };
            ("pyproject.toml", names, advice)
        }
        Runtime::Node if !source.join(NODE_FILES[0]).exists() && !source.join("node_modules").exists() => {
            let names = node_names(source)?;
            let advice = match OTHER_LOCKS.iter().any(|lock| source.join(lock).exists()) {
                true => "only package-lock.json is read: `npm install --package-lock-only` writes one",
                false => "`npm install` writes package-lock.json, from which they are installed",
            };
            ("package.json", names, advice)
        }
        _ => return None,
    };
    let more = if names.len() > SHOWN_MAX { ", …" } else { "" };
    let shown = names.iter().take(SHOWN_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    (!names.is_empty()).then(|| {
        format!(
            "{}: what {file} names ({shown}{more}) is not installed: {advice}. requirements = false if it is not needed",
            function.name
        )
    })
}

/// Names of packages that a project of Python depends on.
fn python_names(source: &Path) -> Option<Vec<String>> {
    let text = read_text(&source.join("pyproject.toml"), FILE_BYTES_MAX).ok()?;
    let project = DeTable::parse(&text).ok()?;
    let table = |of: &'_ DeTable<'_>, name: &str| -> Option<Vec<String>> {
        match of.get(name)?.get_ref() {
            DeValue::Array(all) => {
                Some(all.iter().filter_map(|one| one.get_ref().as_str().map(package)).collect())
            }
            DeValue::Table(all) => Some(all.keys().map(|name| name.get_ref().to_string()).collect()),
            _ => None,
        }
    };
    let project = project.get_ref();
    let standard = project.get("project").and_then(|it| table(it.get_ref().as_table()?, "dependencies"));
    let of_poetry = || {
        let tools = project.get("tool")?.get_ref().as_table()?;
        table(tools.get("poetry")?.get_ref().as_table()?, "dependencies")
    };
    let names = standard.or_else(of_poetry)?;
    Some(names.into_iter().filter(|name| name != "python").collect())
}

/// The package of `numpy[all]>=2; python_version > "3"`.
fn package(requirement: &str) -> String {
    let is_name = |char: char| char.is_ascii_alphanumeric() || "-_.".contains(char);
    requirement.chars().take_while(|char| is_name(*char)).collect()
}

fn node_names(source: &Path) -> Option<Vec<String>> {
    let text = read_text(&source.join(NODE_FILES[1]), FILE_BYTES_MAX).ok()?;
    let manifest: Value = serde_json::from_str(&text).ok()?;
    Some(manifest["dependencies"].as_object()?.keys().cloned().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told_of(runtime: Runtime, files: &[(&str, &str)]) -> Option<String> {
        let folder = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        told(&Function { runtime, ..Function::new("hello") }, folder.path())
    }

    #[test]
    fn what_names_packages_and_is_not_read_is_told() {
        let project = "[project]\ndependencies = [\"numpy[all]>=2; python_version > '3'\", \"pandas\"]\n";
        let told = told_of(Runtime::Python, &[("pyproject.toml", project)]).unwrap();
        assert!(told.contains("(numpy, pandas)") && told.contains("requirements.txt"), "{told}");
        let told = told_of(Runtime::Python, &[("pyproject.toml", project), ("uv.lock", "")]).unwrap();
        assert!(told.contains("uv export"), "{told}");
        let poetry = "[tool.poetry.dependencies]\npython = \"^3.11\"\nflask = \"*\"\n";
        let told = told_of(Runtime::Python, &[("pyproject.toml", poetry)]).unwrap();
        assert!(told.contains("(flask)"), "{told}");
        let package = r#"{"dependencies": {"a": "1", "b": "1", "c": "1", "d": "1", "e": "1"}}"#;
        let told = told_of(Runtime::Node, &[("package.json", package)]).unwrap();
        assert!(told.contains("(a, b, c, d, …)") && told.contains("`npm install`"), "{told}");
        let told = told_of(Runtime::Node, &[("package.json", package), ("yarn.lock", "")]).unwrap();
        assert!(told.contains("--package-lock-only"), "{told}");
    }

    #[test]
    fn what_is_read_or_names_none_is_not_told() {
        let project = "[project]\ndependencies = [\"numpy\"]\n";
        let none = "[project]\nname = \"x\"\n[build-system]\nrequires = [\"setuptools\"]\n";
        let package = r#"{"dependencies": {"a": "1"}}"#;
        for (runtime, files) in [
            (Runtime::Python, vec![("pyproject.toml", project), ("requirements.txt", "numpy")]),
            (Runtime::Python, vec![("pyproject.toml", none)]),
            (Runtime::Python, vec![("pyproject.toml", "no [ toml")]),
            (Runtime::Python, vec![]),
            (Runtime::Node, vec![("package.json", package), ("package-lock.json", "{}")]),
            (Runtime::Node, vec![("package.json", package), ("node_modules", "")]),
            (Runtime::Node, vec![("package.json", r#"{"devDependencies": {"a": "1"}}"#)]),
            (Runtime::Node, vec![("package.json", "no json")]),
            (Runtime::Executable, vec![("package.json", package)]),
        ] {
            assert_eq!(told_of(runtime, &files), None, "{files:?}");
        }
    }
}
