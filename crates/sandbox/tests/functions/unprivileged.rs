// SPDX-License-Identifier: Apache-2.0
//! The same without the rights of root: this program once more, as a user that no
//! account has. What it makes is forked all the same, in realms of its own.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use sandbox::Error;
use sandbox::process::{Language, Weakness};

use crate::world::{Module, World, attempt, options};
use crate::{Case, Named, named, ordinary};

/// As root: all of the following, in one.
pub(crate) const CASES: &[Case] = &[("without_root", without_root)];

/// Of this user alone.
const OWN: &[Case] = &[
    ("forks_without_root", forks),
    ("users_without_root", users),
    ("layout_without_root", tells_layout),
    ("many_processes_without_root", many_processes),
    ("nothing_brought_is_loaded_ahead_without_root", loads_nothing_ahead),
];
const USER: u32 = 64_242;
/// Where interpreters are that everybody may run.
const SYSTEM: &str = "/usr/local/bin:/usr/bin:/bin";
/// What the layout of each language is, behind its name.
const LAYOUT: &str = "layout of ";

/// What holds for such a node.
pub(crate) fn own_cases() -> Vec<Named> {
    let all = Language::INTERPRETED.into_iter().flat_map(|language| {
        [ordinary::CASES, OWN].into_iter().flat_map(move |cases| named(language, "", cases))
    });
    all.collect()
}

/// Why there can be no such node here.
fn missing() -> Option<&'static str> {
    let is_on = |file: &str| std::fs::read_to_string(file).map_or(true, |text| text.trim() != "0");
    let has_interpreters = Path::new("/usr/bin/python3").exists() && Path::new("/usr/bin/node").exists();
    if !is_on("/proc/sys/user/max_user_namespaces") || !is_on("/proc/sys/kernel/unprivileged_userns_clone") {
        return Some("user namespaces are off");
    }
    (!has_interpreters).then_some("there is no interpreter for all users")
}

fn without_root(language: Language) {
    if let Some(why) = missing() {
        eprintln!("skipped: {why}");
        return;
    }
    // Containers have a /tmp of their own, and this program lies where others may not look.
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let program = folder.path().join("functions");
    std::fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    let name = language.name().to_lowercase();
    let mut command = Command::new(&program);
    command.args(["unprivileged", &name]).uid(USER).gid(USER).env("PATH", SYSTEM).current_dir("/");
    let output = command.stdin(Stdio::null()).stderr(Stdio::inherit()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{said}");
    let passed: BTreeSet<&str> = said.lines().filter_map(|line| line.strip_suffix(" ... ok")).collect();
    let all = own_cases().into_iter().filter(|(.., of)| *of == language).count();
    assert_eq!(passed.len(), all, "{said}");
    // What root's own template has, in nobody's realm.
    let told = said.lines().find_map(|line| line.strip_prefix(LAYOUT)?.strip_prefix(&name)).expect(&said);
    let mut own = options(language);
    own.interpreter = Path::new("/usr/bin").join(language.interpreter());
    let own = World::with(own, Weakness::NONE);
    assert_eq!(told.trim(), own.functions.layout().unwrap().to_string());
}

/// What is loaded before the fork is there after it, once.
fn forks(language: Language) {
    let world = World::new(language);
    assert_eq!(world.functions.why_cold(), None);
    assert!(world.functions.template_bytes().unwrap() > 1 << 20);
    let parent = match language {
        Language::Node => "exports.apply = () => Buffer.from(String(process.ppid))",
        _ => "import os\ndef apply(*x): return str(os.getppid()).encode()",
    };
    // Whose parent is in another namespace is nobody's child.
    assert_eq!(world.run(parent).unwrap(), b"0");
    world.assert_others_are_served();
}

/// Each container has a user namespace, and nobody in it has rights.
fn users(language: Language) {
    let world = World::new(language);
    let read = match language {
        Language::Node => {
            "const fs = require('fs');\n\
             exports.apply = (x) => Buffer.from(fs.readlinkSync('/proc/self/ns/user') + '\\n' \
             + fs.readFileSync('/proc/self/status') + fs.readFileSync('/proc/self/uid_map'))"
        }
        _ => {
            "import os\ndef apply(x):\n    \
             return b'\\n'.join([os.readlink(b'/proc/self/ns/user'), open('/proc/self/status', 'rb').read(), \
             open('/proc/self/uid_map', 'rb').read()])\n"
        }
    };
    let text = |id| String::from_utf8(world.invoke(id, read, b"").unwrap()).unwrap();
    let (one, other) = (world.created(read), world.created(read));
    let (first, second) = (text(one), text(other));
    assert_ne!(first.lines().next(), second.lines().next(), "they share a user namespace");
    for line in ["CapEff:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"] {
        assert!(first.contains(line), "{line}: {first}");
    }
    let map: Vec<&str> = first.lines().last().unwrap().split_whitespace().collect();
    assert_eq!((map[0], map[2]), ("60000", "1"), "{first}");
    [one, other].into_iter().for_each(|id| world.end(id));
    if language != Language::Python {
        return;
    }
    for lines in [
        "check(libc.setuid(0))",
        "check(libc.setgid(0))",
        "check(libc.unshare(0x10000000))",
        "check(libc.setns(os.open('/proc/self/ns/user', os.O_RDONLY), 0))",
        "check(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))",
        "open('/proc/1/mem', 'rb')",
        "open('/proc/1/environ', 'rb')",
        "open('/usr/mine', 'w')",
        "open('/etc/passwd')",
    ] {
        let said = world.says(&attempt(lines));
        assert!(said.starts_with("refused"), "{lines}: {said}");
    }
}

fn tells_layout(language: Language) {
    let world = World::new(language);
    println!("{LAYOUT}{} {}", language.name().to_lowercase(), world.functions.layout().unwrap());
}

/// Each container may have its own number of processes, and none takes another one's.
fn many_processes(language: Language) {
    let world = World::new(language);
    let crowd = match language {
        Language::Node => {
            "const { spawn } = require('child_process');\n\
             exports.apply = async () => {\n  let made = 0;\n  for (let at = 0; at < 100; at++) {\n    \
             const child = spawn('/bin/sleep', ['100'], { stdio: 'ignore' });\n    \
             made += await new Promise((tell) => { child.on('error', () => tell(0)); child.on('spawn', () => tell(1)); });\n  }\n  \
             return Buffer.from(String(made));\n};"
        }
        _ => {
            "import os, time\ndef apply(x):\n    made = 0\n    try:\n        while made < 100:\n            \
             if os.fork() == 0: time.sleep(100)\n            made += 1\n    except OSError: pass\n    \
             return str(made).encode()\n"
        }
    };
    let ids: Vec<_> = (0..3).map(|_| world.created(crowd)).collect();
    for id in &ids {
        let made: u32 = String::from_utf8(world.invoke(*id, crowd, b"").unwrap()).unwrap().parse().unwrap();
        assert!((20..64).contains(&made), "{made}");
    }
    // The template forks on beside three that have all that they may.
    world.assert_others_are_served();
    ids.into_iter().for_each(|id| world.end(id));
}

/// A template that runs what functions bring would have the rights of its realm's one
/// user over containers that are being made.
fn loads_nothing_ahead(language: Language) {
    let module = Module { name: "mine", source: "" };
    let refused = World::bringing(options(language), module, Weakness::NONE).err();
    assert!(
        matches!(&refused, Some(Error::NotBrought(why)) if why.contains("not root")),
        "{:?}",
        refused.map(|error| error.to_string())
    );
}
