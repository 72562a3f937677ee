// SPDX-License-Identifier: Apache-2.0
//! What a bare Debian 12 with Rust lacks, from Debian's archive and rustup.
//! Nothing that is there already is touched.

use std::path::Path;

use anyhow::{Context as _, bail};

use crate::process::{self, command};
use crate::progress::{self, step};

/// The guests' target.
pub(crate) const WASM_TARGET: &str = "wasm32-unknown-unknown";

/// A Debian package, and the program by which one sees that it is there.
struct Package {
    name: &'static str,
    program: &'static str,
}

/// A linker for Rust's host programs.
const HOST: &[Package] = &[
    Package { name: "gcc", program: "/usr/bin/cc" },
    Package { name: "libc6-dev", program: "/usr/include/stdio.h" },
];
/// The compiler and linker of C guests.
const C_GUESTS: &[Package] = &[
    Package { name: "clang-16", program: "/usr/bin/clang-16" },
    Package { name: "lld-16", program: "/usr/bin/wasm-ld-16" },
];

/// Everything that builds and tests need.
pub(crate) fn all() -> anyhow::Result<()> {
    packages(HOST)?;
    guest_tools()
}

/// What the guests need.
pub(crate) fn guest_tools() -> anyhow::Result<()> {
    packages(C_GUESTS)?;
    wasm_target()
}

fn packages(wanted: &[Package]) -> anyhow::Result<()> {
    let missing: Vec<_> = wanted
        .iter()
        .filter(|package| !Path::new(package.program).exists())
        .map(|package| package.name)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    step(&format!("installing {} from Debian", missing.join(", ")), || {
        let install = || {
            let mut apt = command("apt-get");
            apt.env("DEBIAN_FRONTEND", "noninteractive").args([
                "install",
                "-y",
                "-qq",
                "--no-install-recommends",
            ]);
            apt.args(&missing).stdout(std::process::Stdio::null());
            process::run(&mut apt)
        };
        // Lists may be missing or stale; fetch them only then.
        if install().is_err() {
            process::run(command("apt-get").args(["update", "-qq"]))?;
            let why = || format!("run as root: apt-get install {}", missing.join(" "));
            install().with_context(why)?;
        }
        Ok(())
    })
}

fn wasm_target() -> anyhow::Result<()> {
    let library =
        process::output(command("rustc").args(["--print", "target-libdir", "--target", WASM_TARGET]))?;
    if Path::new(&library).exists() {
        return Ok(());
    }
    if !process::succeeds(command("rustup").arg("--version")) {
        bail!(
            "rustc has no library for {WASM_TARGET} at {library}, and there is no rustup to add it; \
             install rustup, or a rustc that brings it"
        );
    }
    progress::note(format!("adding {WASM_TARGET} with rustup"));
    let mut add = command("rustup");
    add.args(["target", "add", WASM_TARGET]);
    // A download that hangs is better begun again than waited for.
    add.env("RUSTUP_DOWNLOAD_TIMEOUT", "60");
    process::run(&mut add)
        .with_context(|| format!("run `rustup target add {WASM_TARGET}` where there is a network"))
}
