// SPDX-License-Identifier: Apache-2.0
//! `make test-bare`: does the promise hold that everything begins on a bare
//! Debian 12 with Rust?
//!
//! A new Debian in `target/bare/root` gets a clone of what is committed here
//! and, read-only, the Rust toolchain; nothing else of this machine but its
//! network, with the names and certificates that it needs. In there `make
//! demo` has to pass. It runs in mount and process namespaces of its own:
//! when it ends, however it ends, nothing of it is left but the folder.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail, ensure};

use crate::progress::{note, step};
use crate::{install, layout, process};

const RELEASE: &str = "bookworm";
const MIRROR: &str = "http://deb.debian.org/debian";
/// What one has who has Rust there and types `make`.
const INCLUDE: &str = "--include=ca-certificates,make";
/// Seconds for all that runs inside, at most: two builds on slow cores.
const SECONDS_MAX: &str = "3600";
/// What the demonstration prints when its counts are right.
const CHECKED: &str = "checked: equal (tr, grep, wc)";
/// Files of this machine without which its network is of no use.
const NETWORK: &[&str] = &["/etc/resolv.conf", "/etc/hosts", "/etc/ssl/certs/ca-certificates.crt"];
const PROXIES: &[&str] = &["http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"];

/// Runs as the first process of its namespaces: root, toolchain, targets of make.
const INSIDE: &str = r#"
root=$1 toolchain=$2
shift 2
mount -t proc proc "$root/proc"
mount -t devpts -o ptmxmode=0666 devpts "$root/dev/pts"
mkdir -p "$root/opt/rust"
mount --bind "$toolchain" "$root/opt/rust"
mount -o remount,bind,ro "$root/opt/rust"
exec chroot "$root" make -C /root/sinew "$@"
"#;

/// `cargo xtask test-bare [TARGET…]`: other targets than `demo`, for a look
/// at a part of it.
pub(crate) fn run(targets: &[&str]) -> anyhow::Result<()> {
    let targets = if targets.is_empty() { &["demo"][..] } else { targets };
    let user = process::output(process::command("id").arg("-u"))?;
    ensure!(user == "0", "run as root (`sudo make test-bare`): debootstrap, mount and chroot ask for it");
    install::debootstrap()?;
    // The toolchain is mounted read-only, so it must be whole.
    install::guest_target()?;
    let toolchain = process::output(process::command("rustc").args(["--print", "sysroot"]))?;
    let root = layout::root().join("target/bare/root");
    make_root(&root)?;
    step("cloning what is committed", || {
        let mut git = process::command("git");
        git.args(["clone", "--quiet", "--no-local", "--depth", "1"]);
        git.arg(format!("file://{}", layout::root().display())).arg(root.join("root/sinew"));
        process::run(&mut git)
    })?;
    step(&format!("make {} in a bare Debian", targets.join(" ")), || {
        let mut is_checked = false;
        let mut make = inside(&root, Path::new(&toolchain), targets);
        let look = |line: &str| is_checked |= line.trim() == CHECKED;
        // However long it is silent: `timeout` ends it.
        let has_passed = process::watch(&mut make, Duration::MAX, look)?;
        ensure!(has_passed, "it failed in the bare system; what it left is in {}", root.display());
        if targets.contains(&"demo") && !is_checked {
            bail!("it ended well without saying {CHECKED:?}");
        }
        Ok(())
    })
}

/// A Debian as it is after its installation. The first one is kept to be
/// copied: what a run installs must not be there for the next one.
fn make_root(root: &Path) -> anyhow::Result<()> {
    let pristine = root.with_file_name("pristine");
    let stamp = root.with_file_name("stamp");
    if !stamp.exists() {
        step(&format!("making a bare Debian ({RELEASE})"), || {
            layout::remove(&pristine)?;
            std::fs::create_dir_all(&pristine)?;
            let mut debootstrap = process::command("/usr/sbin/debootstrap");
            debootstrap.args(["--variant=minbase", INCLUDE, RELEASE]).arg(&pristine).arg(MIRROR);
            // Its hundreds of lines are of interest only if it fails.
            let log = root.with_file_name("debootstrap.log");
            debootstrap.stdout(std::fs::File::create(&log)?);
            process::run(&mut debootstrap).with_context(|| format!("see {}", log.display()))?;
            Ok(std::fs::write(&stamp, RELEASE)?)
        })?;
    }
    // Nothing is mounted there: mounts ended with the run that made them.
    layout::remove(root)?;
    process::run(process::command("cp").arg("-a").arg(&pristine).arg(root))?;
    for path in NETWORK.iter().map(Path::new).filter(|path| path.exists()) {
        let inside = root.join(path.strip_prefix("/")?);
        // It may be a link to where nothing is yet.
        let _ = std::fs::remove_file(&inside);
        std::fs::copy(path, &inside).with_context(|| inside.display().to_string())?;
    }
    note(root.display());
    Ok(())
}

fn inside(root: &Path, toolchain: &Path, targets: &[&str]) -> std::process::Command {
    let mut unshare = process::command("timeout");
    unshare.args(["--kill-after=10", SECONDS_MAX, "unshare", "--mount", "--pid", "--fork", "--kill-child"]);
    unshare.args(["sh", "-euc", INSIDE, "sh"]).arg(root).arg(toolchain).args(targets);
    unshare.env_clear();
    unshare.env("PATH", "/opt/rust/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    unshare.envs([("HOME", "/root"), ("LANG", "C.UTF-8"), ("TERM", "dumb")]);
    unshare.envs(PROXIES.iter().filter_map(|name| Some((name, std::env::var_os(name)?))));
    unshare
}

#[cfg(test)]
mod tests;
