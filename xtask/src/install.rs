// SPDX-License-Identifier: Apache-2.0
//! What a bare Debian 12 with Rust lacks, from Debian's archive, and from
//! rustup or Rust's own archive. Nothing that is there already is touched.

mod component;

use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::process::{self, command};
use crate::progress::step;

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

/// What fetches and unpacks an archive of Rust's.
const ARCHIVES: &[Package] = &[
    Package { name: "curl", program: "/usr/bin/curl" },
    Package { name: "ca-certificates", program: "/etc/ssl/certs/ca-certificates.crt" },
    Package { name: "xz-utils", program: "/usr/bin/xz" },
];
/// A browser that looks at the dashboard.
const BROWSER: &[Package] = &[Package { name: "chromium", program: "/usr/bin/chromium" }];
/// What makes a Debian inside of this system.
const DEBOOTSTRAP: &[Package] = &[Package { name: "debootstrap", program: "/usr/sbin/debootstrap" }];

/// An emulated machine, and what its files are made of.
const EMULATOR: &[Package] = &[
    Package { name: "qemu-system-x86", program: "/usr/bin/qemu-system-x86_64" },
    Package { name: "busybox-static", program: "/bin/busybox" },
    Package { name: "cpio", program: "/usr/bin/cpio" },
    Package { name: "binutils", program: "/usr/bin/strip" },
    Package { name: "e2fsprogs", program: "/sbin/mkfs.ext4" },
    Package { name: "python3", program: "/usr/bin/python3.11" },
    Package { name: "nodejs", program: "/usr/bin/node" },
];

/// Everything that builds and tests need.
pub(crate) fn all() -> anyhow::Result<()> {
    packages(HOST)?;
    guest_tools()
}

/// What the test of the dashboard looks with; it is skipped without.
pub(crate) fn browser() -> anyhow::Result<()> {
    packages(BROWSER)
}

/// What the guests need.
pub(crate) fn guest_tools() -> anyhow::Result<()> {
    packages(C_GUESTS)?;
    component::guest_target()
}

/// The guests' target of the compiler, without the C tools.
pub(crate) fn guest_target() -> anyhow::Result<()> {
    component::guest_target()
}

/// What `make release` needs besides: the program that reads what another one has counted.
pub(crate) fn profile_merger() -> anyhow::Result<PathBuf> {
    component::profile_merger()
}

/// What `make test-bare` needs.
pub(crate) fn debootstrap() -> anyhow::Result<()> {
    packages(DEBOOTSTRAP)
}

/// The peer of containers that are started cold.
pub(crate) fn container_runtime() -> anyhow::Result<()> {
    packages(&[Package { name: "runc", program: "/usr/sbin/runc" }])
}

/// The compiler that the one inside is held against.
pub(crate) fn native_compiler() -> anyhow::Result<()> {
    packages(&[Package { name: "clang-22", program: "/usr/bin/clang-22" }])
}

/// What `make test-unified` needs.
pub(crate) fn emulator() -> anyhow::Result<()> {
    packages(EMULATOR)
}

/// The database that benches hold values against. The package that has it as a service would start that.
pub(crate) fn database() -> anyhow::Result<()> {
    if process::succeeds(command("redis-server").arg("--version")) {
        return Ok(());
    }
    packages(&[Package { name: "redis-tools", program: "/usr/bin/redis-check-rdb" }])
}

/// What a bench needs that installs a peer into a virtual environment.
pub(crate) fn python_environments() -> anyhow::Result<()> {
    // Of the Python that the bench will find, which need not be Debian's.
    if process::succeeds(command("python3").args(["-c", "import ensurepip, venv"])) {
        return Ok(());
    }
    packages(&[Package { name: "python3-venv", program: "/usr/share/doc/python3-venv" }])
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
