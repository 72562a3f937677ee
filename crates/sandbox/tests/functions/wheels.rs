// SPDX-License-Identifier: Apache-2.0
//! Packages in native code that have threads of their own: numpy (OpenBLAS),
//! scikit-learn (OpenMP) and pyarrow (its own pools), imported before the fork
//! and used after it. They are fetched by pip, once; where they cannot be, the
//! case is skipped with a message.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use sandbox::process::{FunctionsOptions, Language, Weakness};

use crate::Case;
use crate::world::{World, options};

pub(crate) const CASES: &[Case] = &[
    ("wheels_with_threads_are_forked", wheels_with_threads_are_forked),
    ("threads_at_the_fork_are_noticed", threads_at_the_fork_are_noticed),
];

const WHEELS: [&str; 3] = ["numpy", "scikit-learn", "pyarrow"];

/// A folder with the wheels in it.
fn fetched() -> Result<PathBuf, String> {
    let version = "import sys; print('%d.%d' % sys.version_info[:2])";
    let asked = Command::new("python3").args(["-c", version]).output().map_err(|error| error.to_string())?;
    let version = String::from_utf8_lossy(&asked.stdout).trim().to_owned();
    // Containers have a /tmp of their own, so it cannot be below that.
    let folder = PathBuf::from(format!("/var/tmp/sinew-test-wheels-{version}"));
    if ["numpy", "sklearn", "pyarrow"].iter().all(|name| folder.join(name).is_dir()) {
        return Ok(folder);
    }
    let mut pip = Command::new("python3");
    pip.args(["-m", "pip", "install", "--quiet", "--only-binary", ":all:", "--target"]).arg(&folder);
    let output = pip.args(WHEELS).stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if output.status.success() {
        Ok(folder)
    } else {
        Err(String::from_utf8_lossy(&output.stderr).into_owned())
    }
}

/// Where the template imports these of the wheels.
fn with_wheels(language: Language, imports: &[&str]) -> Option<FunctionsOptions> {
    match fetched() {
        Ok(folder) => Some(FunctionsOptions {
            packages: vec![folder],
            imports: imports.iter().map(|&name| name.to_owned()).collect(),
            // Threads that spin share one processor.
            call_timeout: Duration::from_secs(30),
            ..options(language)
        }),
        Err(why) => {
            eprintln!("skipped: {why}");
            None
        }
    }
}

/// Uses all of them, with more threads than there were at the fork.
const USE: &str = "\
import os
threads = len(os.listdir('/proc/self/task'))
import numpy, sklearn.ensemble, threadpoolctl
left = numpy.arange(90_000, dtype=float).reshape(300, 300)
with threadpoolctl.threadpool_limits(limits=3):
    pools = sorted({pool['num_threads'] for pool in threadpoolctl.threadpool_info()})
    blas = float(numpy.trace(left @ numpy.eye(300)))
    model = sklearn.ensemble.HistGradientBoostingClassifier(max_iter=3)
    fitted = model.fit(left[:, :5], numpy.arange(300) % 2).n_iter_
more = len(os.listdir('/proc/self/task')) - threads
return repr((threads, pools, blas, fitted, more > 0)).encode()";

const ARROW: &str = "\
import pyarrow, pyarrow.compute
table = pyarrow.table({'key': [n % 7 for n in range(10_000)], 'value': range(10_000)})
sums = table.group_by('key', use_threads=True).aggregate([('value', 'sum')])
return b'%d' % pyarrow.compute.sum(sums['value_sum']).as_py()";

fn wheels_with_threads_are_forked(language: Language) {
    let Some(options) = with_wheels(language, &["numpy", "sklearn.ensemble", "threadpoolctl"]) else {
        return;
    };
    let world = World::with(options, Weakness::NONE);
    assert_eq!(world.functions.why_cold(), None);
    // One after the other, and at the same time.
    let trace: f64 = (0..300).map(|n| f64::from(n * 301)).sum();
    let said = format!("(1, [3], {trace:?}, 3, True)");
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| assert_eq!(world.says(USE), said));
        }
    });
    assert_eq!(world.says(USE), said);
    // What numpy draws is each instance's own.
    let draw =
        "import numpy\nreturn repr((numpy.random.random(), numpy.random.default_rng().random())).encode()";
    let (one, other) = (world.says(draw), world.says(draw));
    let (one, other): (Vec<_>, Vec<_>) = (one.split(',').collect(), other.split(',').collect());
    assert!(one.len() == 2 && one[0] != other[0] && one[1] != other[1], "{one:?} {other:?}");
}

/// Arrow has threads once it was used: with them nothing may be forked, and it
/// is served all the same. Only imported it has none, for it is told so.
fn threads_at_the_fork_are_noticed(language: Language) {
    let Some(options) = with_wheels(language, &["pyarrow", "pyarrow.compute"]) else { return };
    let packages = crate::world::Packages::new(
        "imported.py",
        "import pyarrow, pyarrow.compute\n\
         table = pyarrow.table({'key': range(10_000)})\n\
         table.group_by('key', use_threads=True).aggregate([('key', 'sum')])\n",
    );
    let mut with_threads =
        FunctionsOptions { call_timeout: options.call_timeout, ..packages.imported(language) };
    with_threads.packages.extend(options.packages.clone());
    let cold = World::with(with_threads, Weakness::NONE);
    assert!(cold.functions.why_cold().unwrap().contains("threads"), "{:?}", cold.functions.why_cold());
    assert_eq!(cold.says(ARROW), "49995000");
    drop(cold);
    let world = World::with(options, Weakness::NONE);
    assert_eq!(world.functions.why_cold(), None);
    assert_eq!(world.says(ARROW), "49995000");
    assert_eq!(world.says(ARROW), "49995000");
}
