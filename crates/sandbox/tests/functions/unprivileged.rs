// SPDX-License-Identifier: Apache-2.0
//! The same without the rights of root: this program once more, as a user that no
//! account has. What it makes is forked all the same, in realms of its own, and
//! what loads what functions bring has the user of who makes its containers.

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use sandbox::process::{FunctionsOptions, Language, Weakness};

use crate::control::control;
use crate::world::{Module, Packages, World, attempt, options};
use crate::{ATTACK, Case, Named, brought, named, ordinary};

/// As root: all of the following, in one.
pub(crate) const CASES: &[Case] = &[("without_root", without_root)];

/// Of this user alone.
const OWN: &[Case] = &[
    ("forks_without_root", forks),
    ("users_without_root", users),
    ("layout_without_root", tells_layout),
    ("many_processes_without_root", many_processes),
];
/// What comes of modules that are hostile, and are loaded by a template.
const HOSTILE: &[Case] = &[
    ("brought_module_looks_at_makers", looks_at_makers),
    ("brought_module_sees_the_shelf", sees_the_shelf),
    ("one_function_takes_all_inotify", takes_all_inotify),
];
const USER: u32 = 64_242;
/// Where interpreters are that everybody may run.
const SYSTEM: &str = "/usr/local/bin:/usr/bin:/bin";
/// What the layout of each language is, behind its name.
const LAYOUT: &str = "layout of ";

/// What holds for such a node.
pub(crate) fn own_cases() -> Vec<Named> {
    let all = Language::INTERPRETED.into_iter().flat_map(|language| {
        let own = [ordinary::CASES, OWN, brought::CASES];
        own.into_iter().flat_map(move |cases| named(language, "", cases))
    });
    let hostile = [brought::HOSTILE_WITHOUT_ROOT, HOSTILE];
    let hostile = hostile.into_iter().flat_map(|cases| named(Language::Python, ATTACK, cases));
    all.chain(hostile).collect()
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
    // Its counts are not to be taken for this program's own.
    let why = said.split_once("\nfailures:\n").map_or(said.as_str(), |(_, why)| why);
    let why = why.split("\ntest result: ").next().unwrap().trim();
    assert!(output.status.success(), "{why}");
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

/// So many containers are made while somebody looks.
const LOOKS: usize = 40;

/// Who makes a container is born in the realm with the host's files, and with the user
/// that the template has.
fn looks_at_makers(language: Language) {
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::write(folder.path().join("secret"), "of the node").unwrap();
    let secret = folder.path().join("secret").display().to_string();
    let source = format!(
        "import os, time\nfound = b''\nfork = os.fork\n\
         def look():\n    \
         until = time.monotonic() + 120\n    \
         while time.monotonic() < until:\n        \
         for name in filter(str.isdigit, os.listdir('/proc')):\n            \
         try:\n                \
         with open('/proc/' + name + '/root{secret}', 'rb') as file, open('/tmp/found', 'wb') as out: out.write(file.read())\n                \
         return\n            \
         except OSError: pass\n\
         if fork() == 0:\n    \
         look()\n    \
         os._exit(0)\n\
         def tell():\n    \
         global found\n    \
         try: found = open('/tmp/found', 'rb').read()\n    \
         except OSError: pass\n    \
         return fork()\n\
         os.fork = tell\n"
    );
    let found = |weakness| {
        let module = Module { name: "mine", source: &source };
        let world = World::bringing(options(language), module, weakness).unwrap();
        (0..LOOKS).map(|_| world.says("import mine\nreturn mine.found")).find(|said| !said.is_empty())
    };
    assert_eq!(found(Weakness::NONE), None);
    let found = found(Weakness::SEEN);
    control(found.as_deref() == Some("of the node"), format!("{found:?}"));
}

/// Containers show the files of all functions until those of theirs are in place.
fn sees_the_shelf(language: Language) {
    let source = "import ctypes, os\nlibc = ctypes.CDLL(None)\nfork = os.fork\nseen = 99\n\
         def link(number, of='self'):\n    \
         try: return os.readlink(f'/proc/{of}/fd/{number}')\n    \
         except OSError: return ''\n\
         def tell():\n    \
         global seen\n    \
         pid = fork()\n    \
         if pid == 0:\n        \
         try:\n            \
         doors = [(kind, number) for kind in ('user', 'mnt') for number in range(4, 64) \
         if link(number).startswith(kind + ':[') and link(number) != os.readlink('/proc/self/ns/' + kind)]\n            \
         entered = [libc.setns(number, 0) for kind, number in doors]\n            \
         os._exit(len(os.listdir('/shelf')) if entered == [0, 0] else 97)\n        \
         except OSError as error: os._exit(98)\n    \
         seen = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n    \
         return fork()\n\
         os.fork = tell\n";
    let tell = "import mine\nreturn str(mine.seen).encode()";
    let brought =
        World::bringing(options(language), Module { name: "mine", source }, Weakness::NONE).unwrap();
    assert_eq!(brought.says(tell), "0");
    // The node's own template is trusted, and enters before it is known for whom.
    let packages = Packages::new("imported.py", source);
    let ahead = FunctionsOptions { blanks: 1, ..packages.imported(language) };
    let trusted = World::shelved(ahead);
    while trusted.functions.blanks() == 0 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let said = trusted.says("import imported\nreturn str(imported.seen).encode()");
    control(said == "1", said);
}

/// What the kernel counts by user is shared with the node's.
fn takes_all_inotify(language: Language) {
    let take = "libc = ctypes.CDLL(None)\nmade = 0\nwhile made < 128 and libc.inotify_init1(0) != -1: made += 1\nreturn str(made).encode()";
    let world = World::new(language);
    assert_eq!(world.says(take), "16");
    world.assert_others_are_served();
    let outside = "import ctypes\nlibc = ctypes.CDLL(None)\nmade = 0\nwhile made < 128 and libc.inotify_init1(0) != -1: made += 1\nprint(made)";
    let output = Command::new("/usr/bin/python3").args(["-c", outside]).output().unwrap();
    let made: u32 = String::from_utf8_lossy(&output.stdout).trim().parse().unwrap();
    control(made > 16, format!("{made} outside"));
}
