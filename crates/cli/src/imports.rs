// SPDX-License-Identifier: Apache-2.0
//! Advice for functions whose instances take long to begin, because each of them imports
//! what the function brings: what its manifest could name as `imports`, so that a template
//! loads it once.
//!
//! It is not done without being asked for: a module that is loaded earlier sees another environment, and what
//! it draws at random is the same in all instances (decisions 0029 and 0036).

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::deployment::read_text;
use crate::manifest::{Function, Runtime};
use crate::quantity::human_time;

/// Who begins sooner is not helped by much.
const SLOW: Duration = Duration::from_millis(300);
/// Of a handler's module.
const SOURCE_BYTES_MAX: u64 = 1 << 20;
/// Modules that are advised.
const ADVISED_MAX: usize = 16;

/// Modules that a function imports of what is installed for it, in the order in which it does.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Advice {
    pub(crate) imports: Vec<String>,
    /// What it took to have a first instance.
    took: Duration,
}

impl Advice {
    /// What to write into the manifest, if anything would help: `source` is where the code
    /// is, `installed` what its requirements are installed in, `took` what a first instance took.
    pub(crate) fn of(
        function: &Function,
        source: &Path,
        installed: Option<&Path>,
        took: Duration,
    ) -> Option<Self> {
        if function.runtime != Runtime::Python || function.imports.is_some() || took < SLOW {
            return None;
        }
        // A file that cannot be read as text is none that Python reads.
        let text = read_text(&module_of(function, source)?, SOURCE_BYTES_MAX).ok()?;
        let mut imports = imported(&text, installed?);
        // The source's own module of that name is what an instance would import.
        imports.retain(|name| name.split('.').next().is_some_and(|first| !is_installed(first, source)));
        (!imports.is_empty()).then_some(Self { imports, took })
    }

    /// For people.
    pub(crate) fn text(&self, name: &str) -> String {
        let names: Vec<String> = self.imports.iter().map(|name| format!("{name:?}")).collect();
        format!(
            "hint: it took {} until there was an instance of {name}, and each new one loads again what it imports. Loaded once for all, \
             before they have their environment and secrets, they begin in milliseconds; in sinew.toml:\n  imports = [{}]\n  \
             (imports = [] leaves it as it is, without this hint; docs/reference/manifest.md says more)",
            human_time(self.took),
            names.join(", ")
        )
    }
}

/// The file that the handler is in.
fn module_of(function: &Function, source: &Path) -> Option<PathBuf> {
    if source.is_file() {
        return Some(source.to_owned());
    }
    let handler = function.handler.as_deref().unwrap_or("main.handler");
    let module = source.join(handler.rsplit_once('.')?.0.replace('.', "/"));
    let files = [module.with_extension("py"), module.join("__init__.py")];
    files.into_iter().find(|file| file.is_file())
}

/// Modules that the text imports when it is loaded and that are installed there. It is read line by line: what
/// is missed or too much is corrected by whoever reads the advice, or by the node.
fn imported(text: &str, installed: &Path) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut add = |name: String| {
        if is_installed(&name, installed) && !found.contains(&name) && found.len() < ADVISED_MAX {
            found.push(name);
        }
    };
    let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
    for line in lines.flat_map(|line| line.split("; ")) {
        if let Some(names) = line.strip_prefix("import ") {
            for name in names.split(',') {
                add(name.split_whitespace().next().unwrap_or_default().to_owned());
            }
        } else if let Some((module, names)) =
            line.strip_prefix("from ").and_then(|rest| rest.split_once(" import "))
        {
            let module = module.trim();
            let names = names.trim_matches(|letter: char| letter.is_whitespace() || "()\\".contains(letter));
            let mut modules = names.split(',').filter_map(|name| {
                let name = format!("{module}.{}", name.split_whitespace().next()?);
                is_installed(&name, installed).then_some(name)
            });
            // What is imported from it may be a module itself, with which it is loaded.
            match modules.next() {
                Some(first) => [first].into_iter().chain(modules).for_each(&mut add),
                None => add(module.to_owned()),
            }
        }
    }
    found
}

/// Whether a module is among what is installed, as a file, a folder, or compiled.
fn is_installed(name: &str, installed: &Path) -> bool {
    let is_plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    };
    if !name.split('.').all(is_plain) {
        return false;
    }
    let path = installed.join(name.replace('.', "/"));
    let (Some(folder), Some(own)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return false;
    };
    let is_compiled = |entry: std::fs::DirEntry| {
        let file = entry.file_name();
        let rest = file.to_str().and_then(|file| file.strip_prefix(own));
        rest.is_some_and(|rest| rest.starts_with('.') && rest.ends_with(".so"))
    };
    path.is_dir()
        || path.with_extension("py").is_file()
        || std::fs::read_dir(folder).into_iter().flatten().flatten().any(is_compiled)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn installed() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        for name in ["numpy", "pandas", "PIL", "sklearn/ensemble", "numpy-2.0.dist-info", "bin"] {
            std::fs::create_dir_all(folder.path().join(name)).unwrap();
        }
        for name in ["six.py", "PIL/Image.py", "_cffi_backend.cpython-311-x86_64-linux-gnu.so"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        folder
    }

    #[test]
    fn what_is_imported_and_installed_is_found_in_its_order() {
        let folder = installed();
        let found = |text: &str| imported(text, folder.path());
        let text = "\"\"\"Reports.\"\"\"\nimport json, os\nimport pandas as pd, numpy as np  # numbers\n\
                    from PIL import Image, UnidentifiedImageError\nfrom sklearn.ensemble import (\n    RandomForestClassifier,\n)\n\
                    import six; import numpy\nfrom . import numpy\nfrom .pandas import x\nimport _cffi_backend\nimport own\n\
                    def handler(event):\n    import PIL\n";
        let expected = ["pandas", "numpy", "PIL.Image", "sklearn.ensemble", "six", "_cffi_backend"];
        assert_eq!(found(text), expected);
        assert_eq!(found("from numpy import array\nfrom pandas import *\n"), ["numpy", "pandas"]);
        for none in [
            "",
            "import ",
            "from  import x",
            "import ../numpy",
            "import numpy/../bin",
            "from x import",
            "imports numpy",
        ] {
            assert_eq!(found(none), [] as [&str; 0], "{none}");
        }
    }

    #[test]
    fn who_is_slow_and_has_said_nothing_is_advised() {
        let (folder, source) = (installed(), tempfile::tempdir().unwrap());
        std::fs::create_dir(source.path().join("app")).unwrap();
        std::fs::write(source.path().join("main.py"), "import numpy\n").unwrap();
        std::fs::write(source.path().join("app/__init__.py"), "import pandas\n").unwrap();
        let function = Function { runtime: Runtime::Python, ..Function::new("report") };
        let advised = |function: &Function, took| {
            let advice = Advice::of(function, source.path(), Some(folder.path()), took);
            advice.map(|advice| advice.imports)
        };
        assert_eq!(advised(&function, SLOW), Some(vec!["numpy".to_owned()]));
        assert_eq!(advised(&function, SLOW / 2), None);
        let elsewhere = Function { handler: Some("app.handler".to_owned()), ..function.clone() };
        assert_eq!(advised(&elsewhere, SLOW), Some(vec!["pandas".to_owned()]));
        // What would be imported is in the source.
        std::fs::write(source.path().join("pandas.py"), "").unwrap();
        assert_eq!(advised(&elsewhere, SLOW), None);
        let nowhere = Function { handler: Some("none.handler".to_owned()), ..function.clone() };
        assert_eq!(advised(&nowhere, SLOW), None);
        // Who wants none says so.
        let decided = Function { imports: Some(Vec::new()), ..function.clone() };
        assert_eq!(advised(&decided, SLOW), None);
        let other = Function { runtime: Runtime::Node, ..function.clone() };
        assert_eq!(advised(&other, SLOW), None);
        assert_eq!(Advice::of(&function, source.path(), None, SLOW), None);
        let text = Advice::of(&function, source.path(), Some(folder.path()), SLOW).unwrap().text("report");
        assert!(text.contains("300 ms") && text.contains("imports = [\"numpy\"]\n"), "{text}");
    }
}
