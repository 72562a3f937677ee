// SPDX-License-Identifier: Apache-2.0
//! What is run: two lines that show the cost of running anything, one that is real
//! work, and functions as those of SeBS, by what they do: a page from a template, and a
//! folder that is packed.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, ensure};

/// Code in two parts: what can be done once, and what is done for each call.
pub(super) struct Snippet {
    pub(super) name: &'static str,
    pub(super) what: &'static str,
    setup: &'static str,
    body: &'static str,
    printed: fn(usize) -> Option<String>,
    /// The runner is measured in each round.
    pub(super) is_fast: bool,
}

/// `DATA` is the folder, `NUMBER` differs from call to call.
pub(super) const SNIPPETS: [Snippet; 5] = [
    Snippet {
        name: "oneliner",
        what: "print(NUMBER)",
        setup: "import sys",
        body: "print(NUMBER)",
        printed: |number| Some(format!("{number}\n")),
        is_fast: true,
    },
    Snippet {
        name: "numpy",
        what: "a product of two matrices of 16 x 16",
        setup: "import numpy",
        body: "print(int((numpy.full((16, 16), NUMBER) @ numpy.ones((16, 16)))[3, 4]))",
        printed: |number| Some(format!("{}\n", 16 * number)),
        is_fast: false,
    },
    Snippet {
        name: "groupby",
        what: "a groupby on a small frame",
        setup: "import pandas",
        body: "df = pandas.DataFrame({'k': list('abcab'), 'v': [1, 2, 3, 4, NUMBER]})\n\
            print(df.groupby('k').v.sum().to_dict())",
        printed: |number| Some(format!("{{'a': 5, 'b': {}, 'c': 3}}\n", 2 + number)),
        is_fast: false,
    },
    Snippet {
        name: "dynamic_html",
        what: "a page of 1,000 numbers from a template (Jinja2)",
        setup: "import sys\nsys.path.append('DATA/packages')\nimport jinja2\n\
            page = jinja2.Template(open('DATA/page.html').read())",
        body: "print(len(page.render(user='user NUMBER', numbers=range(NUMBER, NUMBER + 1000))))",
        printed: |_| None,
        is_fast: false,
    },
    Snippet {
        name: "compression",
        what: "a zip of 16 files, 1 MiB",
        setup: "import io, os, zipfile",
        body: "to = io.BytesIO()\n\
            with zipfile.ZipFile(to, 'w', zipfile.ZIP_DEFLATED) as packed:\n\
            \x20   for name in sorted(os.listdir('DATA/files')):\n\
            \x20       packed.write('DATA/files/' + name, 'NUMBER/' + name)\n\
            print(len(zipfile.ZipFile(to).namelist()), len(to.getvalue()))",
        printed: |_| None,
        is_fast: false,
    },
];

impl Snippet {
    fn filled(text: &str, data: &Path, number: usize) -> String {
        text.replace("DATA", &data.display().to_string()).replace("NUMBER", &number.to_string())
    }

    pub(super) fn setup(&self, data: &Path) -> String {
        Self::filled(self.setup, data, 0)
    }

    pub(super) fn body(&self, data: &Path, number: usize) -> String {
        Self::filled(self.body, data, number)
    }

    /// All of it, which prints when it has ended and nothing else.
    pub(super) fn contained(&self, data: &Path) -> String {
        format!(
            "import contextlib, io, time\nwith contextlib.redirect_stdout(io.StringIO()):\n    exec({:?})\n\
            print(time.monotonic_ns())\n",
            format!("{}\n{}", self.setup(data), self.body(data, 7))
        )
    }

    /// That what it printed is right.
    pub(super) fn check(&self, printed: &str, number: usize) -> anyhow::Result<()> {
        let right = match (self.printed)(number) {
            Some(expected) => printed == expected,
            // How long a page or an archive is.
            None => {
                printed.split_whitespace().last().and_then(|n| n.parse().ok()).is_some_and(|n: u64| n > 4096)
            }
        };
        ensure!(right, "{} {number} printed {printed:?}", self.name);
        Ok(())
    }

    /// The promised figures have names of their own.
    pub(super) fn figure(&self, peer: &str) -> String {
        match (self.name, peer) {
            ("groupby", _) => format!("times_faster_than_{peer}"),
            (name, peer) => format!("{name}_times_faster_than_{peer}"),
        }
    }
}

/// The template, the packages and the files, at a path that all of them see.
pub(super) fn data(folder: &Path, python: &Path) -> anyhow::Result<PathBuf> {
    let data = folder.join("data");
    std::fs::create_dir_all(data.join("files"))?;
    std::fs::create_dir_all(data.join("packages"))?;
    let page = "<html><body><h1>Welcome, {{ user }}</h1><ul>\n\
        {% for number in numbers %}<li>{{ number }}</li>\n{% endfor %}</ul></body></html>\n";
    std::fs::write(data.join("page.html"), page)?;
    for number in 0..16u64 {
        // Text that can be packed, but not to nothing.
        let words = (0..8192u64).map(|at| (at * at * (number + 3)) % 9973);
        let text: String = words.map(|word| format!("{word:x} ")).collect();
        std::fs::write(
            data.join(format!("files/{number:02}.txt")),
            &text.as_bytes()[..text.len().min(1 << 16)],
        )?;
    }
    let site = python.parent().and_then(Path::parent).context("an interpreter lies in bin")?.join("lib");
    let version = std::fs::read_dir(&site)?.flatten().map(|entry| entry.path());
    let site = version.map(|path| path.join("site-packages")).find(|path| path.join("jinja2").exists());
    let site = site.context("Jinja2 is not in the environment")?;
    for package in ["jinja2", "markupsafe"] {
        copy_sources(&site.join(package), &data.join("packages").join(package))?;
    }
    Ok(data)
}

fn copy_sources(from: &Path, to: &Path) -> anyhow::Result<()> {
    std::fs::create_dir_all(to)?;
    for entry in std::fs::read_dir(from)?.flatten() {
        let path = entry.path();
        if path.extension().is_some_and(|end| end == "py") {
            std::fs::copy(&path, to.join(entry.file_name()))?;
        }
    }
    Ok(())
}
