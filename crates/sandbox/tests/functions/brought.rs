// SPDX-License-Identifier: Apache-2.0
//! Templates that load what functions bring: each is confined itself, and has
//! rights over nothing but the containers of its own instances.

use std::time::{Duration, Instant};

use sandbox::process::{FunctionsOptions, Language, TooMuchKept, Weakness};
use sandbox::{Error, Sandbox as _};

use crate::Case;
use crate::control::{control, look_alike};
use crate::world::{Module, World, apply, attempt, options};

/// In both languages.
pub(crate) const CASES: &[Case] = &[
    ("brought_modules_are_loaded_once", loaded_once),
    ("brought_modules_that_cannot_be_forked", cannot_be_forked),
    ("brought_templates_that_die", templates_that_die),
];

pub(crate) const HOSTILE: &[Case] = &[
    ("brought_module_becomes_root", becomes_root),
    ("brought_module_leaves", leaves),
    ("brought_module_lies_about_folders", lies_about_folders),
    ("brought_module_never_ends", never_ends),
    ("brought_module_takes_all", takes_all),
    ("brought_module_serves_itself", serves_itself),
    ("brought_module_holds_on", holds_on),
    ("brought_module_keeps_memory", keeps_memory),
    ("brought_module_sends_descriptors", sends_descriptors),
];

/// Those that mean something where a template is who makes containers, too.
pub(crate) const HOSTILE_WITHOUT_ROOT: &[Case] = &[
    ("brought_module_leaves", leaves),
    ("brought_module_never_ends", never_ends),
    ("brought_module_serves_itself", serves_itself),
    ("brought_module_holds_on", holds_on),
    ("brought_module_sends_descriptors", sends_descriptors),
];

/// A module that draws a number when it is loaded, and a function that tells it.
fn drawing(language: Language) -> (Module<'static>, &'static str) {
    match language {
        Language::Node => (
            Module {
                name: "mine",
                source: "exports.drawn = require('crypto').randomUUID() + process.hrtime.bigint();",
            },
            "const { drawn } = require('mine');\nexports.apply = () => Buffer.from(drawn);",
        ),
        Language::Python | Language::Executable => (
            Module { name: "mine", source: "import os\ndrawn = os.urandom(16).hex()\n" },
            "import mine\ndef apply(x): return mine.drawn.encode()",
        ),
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

fn loaded_once(language: Language) {
    let (module, tell) = drawing(language);
    let world = World::bringing(options(language), module, Weakness::NONE).unwrap();
    assert_eq!(world.functions.why_cold(), None);
    let (first, second) = (text(world.run(tell).unwrap()), text(world.run(tell).unwrap()));
    assert_eq!(first, second, "it was loaded after the fork");
    assert!(world.functions.template_bytes().unwrap() > 1 << 20);
    world.assert_others_are_served();
    // Whoever brings it to another template has it loaded there.
    let other = World::bringing(options(language), module, Weakness::NONE).unwrap();
    assert_ne!(text(other.run(tell).unwrap()), first);
    drop(other);
    if language == Language::Node {
        return;
    }
    // An instance is confined as one of any other template.
    let status = "return open('/proc/self/status').read().encode()";
    let facts = |world: &World| -> Vec<String> {
        let told = world.says(status);
        let wanted = [
            "Groups:",
            "NSpid",
            "CapInh:",
            "CapPrm:",
            "CapEff:",
            "CapBnd:",
            "CapAmb:",
            "NoNewPrivs:",
            "Seccomp:",
        ];
        told.lines()
            .filter(|line| wanted.iter().any(|name| line.starts_with(name)))
            .map(str::to_owned)
            .collect()
    };
    let plain = World::new(language);
    let (brought, usual) = (facts(&world), facts(&plain));
    assert_eq!(brought, usual);
    assert!(brought.contains(&"CapEff:\t0000000000000000".to_owned()), "{brought:?}");
    for lines in [
        "check(libc.setuid(0))",
        "check(libc.setns(os.open('/proc/self/ns/mnt', os.O_RDONLY), 0))",
        "check(libc.unshare(0x10000000))",
        "open('/usr/mine', 'w')",
        "open('/proc/1/mem', 'rb')",
    ] {
        let (brought, usual) = (world.says(&attempt(lines)), plain.says(&attempt(lines)));
        assert!(brought.starts_with("refused") && brought == usual, "{lines}: {brought}, as usual {usual}");
    }
    // And held to its own memory, not that of the template.
    let fault = world.run(&apply("x = bytearray(300 << 20)\nreturn b''")).unwrap_err();
    assert_eq!(fault.code, objects::FailureCode::Memory, "{fault}");
}

fn cannot_be_forked(language: Language) {
    let source = match language {
        Language::Node => "setInterval(() => {}, 1000); require('net').createServer().listen(8123);",
        _ => "import threading, time\nthreading.Thread(target=time.sleep, args=(99,), daemon=True).start()\n",
    };
    let refused = World::bringing(options(language), Module { name: "mine", source }, Weakness::NONE);
    assert!(matches!(refused.err(), Some(Error::NotBrought(_))));
    if language == Language::Python {
        // A lock that one instance holds would be held for all.
        let mapped = |flags| {
            format!("import mmap\nmine = mmap.mmap(-1, 4096, flags=mmap.{flags} | mmap.MAP_ANONYMOUS)\n")
        };
        let (shared, private) = (mapped("MAP_SHARED"), mapped("MAP_PRIVATE"));
        let bringing = |source: &str| {
            World::bringing(options(language), Module { name: "mine", source }, Weakness::NONE).err()
        };
        let refused = bringing(&shared);
        let is_right = |why: &str| why.contains("memory that all instances would share");
        assert!(matches!(&refused, Some(Error::NotBrought(why)) if is_right(why)), "{refused:?}");
        assert!(bringing(&private).is_none());
    }
    let missing =
        World::bringing(options(language), Module { name: "mine", source: "syntax error" }, Weakness::NONE);
    let why = missing.err().unwrap().to_string();
    assert!(why.contains("cannot import mine") && why.contains("SyntaxError"), "{why}");
}

/// Instances outlive their template, and the next one loads the same again.
fn templates_that_die(language: Language) {
    let (source, tell) = match language {
        Language::Node => (
            "exports.drawn = String(process.hrtime.bigint());",
            "const { drawn } = require('mine');\nexports.apply = () => Buffer.from(drawn);",
        ),
        _ => (
            "import time\ndrawn = str(time.monotonic_ns())\n",
            "import mine\ndef apply(x): return mine.drawn.encode()",
        ),
    };
    let world = World::bringing(options(language), Module { name: "mine", source }, Weakness::NONE).unwrap();
    let lives = world.created(tell);
    let first = text(world.invoke(lives, tell, b"").unwrap());
    world.functions.end_template();
    // Those that were forked live on, and others are forked from the next one.
    assert_eq!(text(world.invoke(lives, tell, b"").unwrap()), first);
    let next = text(world.run(tell).unwrap());
    assert_ne!(next, first);
    assert_eq!(text(world.run(tell).unwrap()), next);
    assert_eq!(text(world.invoke(lives, tell, b"").unwrap()), first);
    world.end(lives);
    assert!(!world.functions.is_over());
}

/// What the module of these lines says that it has seen, of each attempt.
fn seen(attempts: &[&str], weakness: Weakness) -> Vec<String> {
    let mut source = "import ctypes, os, signal, socket, sys\nlibc = ctypes.CDLL(None, use_errno=True)\n\
         def check(result):\n    if result == -1: raise OSError(ctypes.get_errno(), 'refused')\n    return result\n\
         seen = []\n"
        .to_owned();
    for lines in attempts {
        let body: String = lines.lines().map(|line| format!("    {line}\n")).collect();
        source += &format!(
            "try:\n{body}    seen.append('done')\nexcept OSError as error:\n    seen.append('refused %d' % error.errno)\n"
        );
    }
    let module = Module { name: "mine", source: &source };
    let world = World::bringing(options(Language::Python), module, weakness).unwrap();
    world.says("import mine\nreturn '\\n'.join(mine.seen).encode()").lines().map(str::to_owned).collect()
}

fn becomes_root(_: Language) {
    // In another process: the module is to be loaded in the end.
    let child = |lines: &str| {
        format!(
            "pid = os.fork()\nif pid == 0:\n    try:\n        {lines}\n        os._exit(0)\n    except OSError as error:\n        os._exit(error.errno)\n\
             status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\nif status: raise OSError(status, 'refused')"
        )
    };
    let root = [child("os.setuid(0)"), child("os.setgid(0)"), child("os.setuid(0x7fffffff)")];
    let more = [child("os.setgroups([0])"), child("os.setresuid(0, 0, 0)"), child("os.setreuid(0, 0)")];
    let all: Vec<&str> = root.iter().chain(&more).map(String::as_str).collect();
    let told = seen(&all, Weakness::NONE);
    assert!(told.len() == all.len() && told.iter().all(|one| one.starts_with("refused")), "{told:?}");
    // It may become users of containers, or nothing could be forked.
    let first: Vec<&str> = root.iter().take(2).map(String::as_str).collect();
    let told = seen(&first, Weakness::ANY_USER);
    control(told == ["done", "done"], format!("{told:?}"));
}

fn leaves(_: Language) {
    let attempts = [
        "check(libc.unshare(0x00020000))",
        "check(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))",
        "check(libc.umount2(b'/layers/0', 2))",
        "os.chroot('/tmp')",
        "check(libc.sethostname(b'mine', 4))",
        "check(libc.ptrace(16, 1, 0, 0))",
        "os.kill(1, signal.SIGKILL)",
        "open('/proc/1/mem', 'rb')",
        "os.listdir('/proc/1/fd')",
        "open('/layers/0/mine.py', 'w')",
        "open('/usr/mine', 'w')",
        "open('/etc/shadow')",
        "socket.socket(socket.AF_PACKET, socket.SOCK_RAW)",
        "socket.create_connection(('192.0.2.1', 80), 1)",
        "socket.create_connection(('127.0.0.1', 8080), 1)",
        "check(libc.syscall(321, 0, 0, 0))",
        "check(libc.syscall(425, 1, 0))",
    ];
    let told = seen(&attempts, Weakness::NONE);
    for (lines, one) in attempts.iter().zip(&told) {
        // Of its own user the first process is without root; the kernel drops the signal.
        let is_dropped = lines.starts_with("os.kill(1") && linux::own_user().0 != 0;
        assert!(one.starts_with("refused") || is_dropped, "{lines}: {one}");
    }
    assert_eq!(told.len(), attempts.len());
    // What it holds over its own realm, the filter keeps it from using.
    let told = seen(&attempts[..2], Weakness::ANY_CALL);
    control(told == ["done", "done"], format!("{told:?}"));
}

/// A template says where its interpreter lies, and containers see these folders.
fn lies_about_folders(language: Language) {
    let secret = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::write(secret.path().join("secret"), "of the host").unwrap();
    let lie = |host: &str| {
        format!(
            "import os, struct, sys\nmain = sys.modules['__main__']\nsay = main.say\n\
             def lie(core, message):\n    \
             if message[:1] == b'H':\n        \
             head = message[:struct.calcsize('<cHI32si')]\n        \
             message = head + b'\\0'.join([os.fsencode(sys.executable), b'3.11', b'cpython-311', b'{host}', *message[len(head):].split(b'\\0')[3:]])\n    \
             return say(core, message)\nmain.say = lie\n"
        )
    };
    let host = secret.path().to_str().unwrap();
    let source = lie(host);
    let read = format!(
        "try:\n    return open('{host}/secret', 'rb').read()\nexcept OSError as error:\n    return b'refused'"
    );
    let module = Module { name: "mine", source: &source };
    let world = World::bringing(options(language), module, Weakness::NONE).unwrap();
    assert_eq!(world.says(&read), "refused");
    drop(world);
    // The node's own template is believed.
    let packages = crate::world::Packages::new("imported.py", &source);
    let world = World::with(packages.imported(language), Weakness::NONE);
    let said = world.says(&read);
    control(said == "of the host", said);
}

fn never_ends(language: Language) {
    let hasty = || FunctionsOptions { start_timeout: Duration::from_secs(2), ..options(language) };
    let endless = "import signal, time\nfor number in range(1, 65):\n    try: signal.signal(number, signal.SIG_IGN)\n    except (OSError, ValueError): pass\n\
         import os\nif os.fork() == 0: os.setsid()\nwhile True: time.sleep(1)";
    let refused = World::bringing(hasty(), Module { name: "mine", source: endless }, Weakness::NONE);
    let why = refused.err().unwrap().to_string();
    assert!(why.contains("said nothing within 2 s"), "{why}");
    let slow = Module { name: "mine", source: "import time\ntime.sleep(3)" };
    let refused = World::bringing(hasty(), slow, Weakness::NONE);
    assert!(refused.is_err());
    let patient = World::bringing(options(language), slow, Weakness::NONE);
    control(patient.is_ok(), "loading that takes three seconds");
}

/// Memory, processes, files and processor time, as any function.
fn takes_all(language: Language) {
    let bomb = Module { name: "mine", source: "kept = bytearray(300 << 20)" };
    let refused = World::bringing(options(language), bomb, Weakness::NONE);
    assert!(refused.is_err());
    drop(refused);
    let unbounded = World::bringing(options(language), bomb, Weakness::NO_GROUP);
    control(unbounded.is_ok(), "300 MiB without a control group");
    drop(unbounded);
    let crowd = "import os, time\nmade = 0\nwhile made < 1000:\n    try: pid = os.fork()\n    except OSError: break\n    \
         if pid == 0:\n        time.sleep(60)\n        os._exit(0)\n    made += 1\n";
    let world = World::bringing(options(language), Module { name: "mine", source: crowd }, Weakness::NONE);
    // It has no process left to fork an instance with; that is its own loss.
    let tell = "import mine\ndef apply(x): return str(mine.made).encode()";
    let why = match world {
        Ok(world) => {
            let created = world.functions.create(&[world.spec(tell)]).pop().unwrap();
            created.unwrap_err().to_string()
        }
        Err(error) => error.to_string(),
    };
    assert!(why.contains("fork") || why.contains("ended"), "{why}");
    look_alike(World::new(language).says("return b'served'") == "served", "a neighbour");
}

/// A child that does not confine itself serves all the same: where its template is,
/// within the template's bounds, and no longer than its instance.
fn serves_itself(language: Language) {
    let source = "import os, socket, sys\nmain = sys.modules['__main__']\n\
         def become_instance(core):\n    \
         import struct, array\n    \
         names = sorted(int(name) for name in os.listdir('/proc/self/fd'))\n    \
         for number in names:\n        \
         try: stream = socket.socket(fileno=os.dup(number))\n        \
         except OSError: continue\n        \
         if stream.family == socket.AF_UNIX and stream.type == socket.SOCK_STREAM:\n            \
         os.dup2(stream.fileno(), main.CHANNEL)\n            \
         main.Instance(main.Channel(socket.socket(fileno=main.CHANNEL)), core).serve()\n    \
         os._exit(7)\nmain.become_instance = become_instance\n";
    let module = Module { name: "mine", source };
    let world = World::bringing(options(language), module, Weakness::NONE).unwrap();
    let lines = "return '\\n'.join(line for line in open('/proc/self/status') if line[:4] in ('Uid:', 'Secc', 'CapE')).encode()";
    let said = world.says(lines);
    assert!(said.contains("Seccomp:\t2"), "it is still filtered: {said}");
    let honest = World::bringing(options(language), drawing(language).0, Weakness::NONE).unwrap();
    let usual = honest.says(lines);
    // What it kept by that, over its own realm, an honest one has given up.
    let none = "CapEff:\t0000000000000000";
    control(usual.contains(none) && !said.contains(none), format!("{said}, and honest {usual}"));
    // From there it becomes nobody else either, and reaches no other function.
    let root = world.says(&attempt("os.setuid(0)"));
    assert!(root.starts_with("refused"), "{root}");
    honest.assert_others_are_served();
}

/// A helper keeps what the template was given for an instance, and has something
/// of its own in that instance's container that nobody reaps.
fn holds_on(language: Language) {
    let source = "import ctypes, os, sys, time\nmain = sys.modules['__main__']\n\
         libc = ctypes.CDLL(None)\nfork = os.fork\nown = os.readlink('/proc/self/ns/pid')\n\
         def link(number):\n    \
         try: return os.readlink(f'/proc/self/fd/{number}')\n    \
         except OSError: return ''\n\
         def hold():\n    \
         doors = [number for number in range(4, 64) if link(number).startswith('pid:') and link(number) != own]\n    \
         door, back = os.dup(doors[0]), os.open('/proc/self/ns/pid', os.O_RDONLY)\n    \
         ready, tell = os.pipe()\n    \
         libc.setns(back, 0x20000000)\n    \
         if fork() == 0:\n        \
         libc.setns(door, 0x20000000)\n        \
         if fork() == 0: os._exit(0)\n        \
         os.write(tell, b'x')\n        \
         while True: time.sleep(60)\n    \
         os.read(ready, 1)\n    \
         libc.setns(door, 0x20000000)\n    \
         return fork()\nos.fork = hold\n";
    let world = World::bringing(options(language), Module { name: "mine", source }, Weakness::NONE).unwrap();
    let id = world.created(world.sources.echo);
    assert_eq!(world.invoke(id, world.sources.echo, b"abc").as_deref(), Ok(b"abc".as_slice()));
    let began = Instant::now();
    world.end(id);
    let took = began.elapsed();
    // Its end was held back, and then the realm's came, and with it that of all.
    look_alike(took > Duration::from_secs(2), format!("it was not held back: {took:?}"));
    assert!(took < Duration::from_secs(12), "{took:?}");
    assert!(world.functions.is_over());
    let next = world.functions.create(&[world.spec(world.sources.echo)]).pop().unwrap();
    assert!(next.is_err());
}

/// Looks at what is kept until it is too much, or was not for some looks.
fn kept_too_much(world: &World) -> Option<TooMuchKept> {
    (0..5).find_map(|_| {
        std::thread::sleep(Duration::from_millis(1050));
        world.functions.look_at_kept()
    })
}

/// Memory that it shares with instances counts for it when they have ended, and all ends where
/// that is more than they may have.
fn keeps_memory(language: Language) {
    let ways = [
        "import mmap\nmmap.mmap(-1, 1 << 20)",
        "import mmap\nfile = open('/tmp/shared', 'w+b')\nfile.truncate(4096)\nmmap.mmap(file.fileno(), 4096)",
        "os.memfd_create('mine')",
        "check(libc.shmget(0, 4096, 0o1600))",
    ];
    assert_eq!(seen(&ways, Weakness::NONE), ["done"; 4], "it may, as any function");
    // It has none while somebody looks.
    let shared = "import mmap, os\nshared, fork = None, os.fork\ndef late():\n    global shared\n    \
                  if shared is None: shared = mmap.mmap(-1, 600 << 20)\n    return fork()\nos.fork = late\n";
    let bringing = |source: &str| {
        let world = World::bringing(options(language), Module { name: "mine", source }, Weakness::NONE);
        world.unwrap().with_memory(160 << 20)
    };
    let world = bringing(shared);
    // In the memory of an instance, which then ends.
    let fill = |world: &World, times: u32| {
        let fill = "import mine\ndef apply(x):\n    at = int(x)\n    \
                    for page in range(at << 20, (at + 100) << 20, 4096): mine.shared[page] = 1\n    return b'filled'\n";
        for time in 0..times {
            let id = world.created(fill);
            let at = (time * 100).to_string();
            assert_eq!(world.invoke(id, fill, at.as_bytes()).as_deref(), Ok(b"filled".as_slice()));
            world.end(id);
        }
    };
    fill(&world, 1);
    assert_eq!(kept_too_much(&world), None, "the template itself may have as much");
    world.assert_others_are_served();
    // As much again as was filled is not kept by one that shares nothing.
    let private = shared.replace("600 << 20)", "600 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)");
    let honest = bringing(&private);
    fill(&honest, 4);
    control(kept_too_much(&honest).is_none(), "memory of their own goes with instances");
    fill(&world, 4);
    let too_much = kept_too_much(&world).expect("nobody saw it");
    assert!(too_much.bytes > 380 << 20 && too_much.most == 320 << 20, "{too_much:?}");
    std::thread::sleep(Duration::from_millis(1050));
    assert_eq!(world.functions.look_at_kept(), None, "it is told once");
    let began = Instant::now();
    while !world.functions.is_over() && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(world.functions.is_over());
    honest.assert_others_are_served();
}

/// What it sends the node to close could take as long as it likes.
fn sends_descriptors(language: Language) {
    let source = "import array, os, socket, stat, sys\nseen = []\n\
         for number in range(0, 64):\n    \
         try:\n        \
         if not stat.S_ISSOCK(os.fstat(number).st_mode): continue\n        \
         stream = socket.socket(fileno=os.dup(number))\n        \
         stream.sendmsg([b'X' + bytes(12)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [0]))])\n        \
         seen.append('sent')\n    \
         except OSError as error: seen.append('refused %d' % error.errno)\n";
    let module = Module { name: "mine", source };
    let world = World::bringing(options(language), module, Weakness::NONE);
    let (own, peer) = std::os::unix::net::UnixStream::pair().unwrap();
    // As far as the kernel can: from 6.16 on.
    _ = linux::refuse_descriptors(&own);
    let passes = linux::send_message(&peer, b"x", &[std::os::fd::AsFd::as_fd(&own)]).is_ok();
    match world {
        // A word before the hello is none.
        Err(error) => assert!(passes, "{error}"),
        Ok(world) => {
            let said = world.says("import mine\nreturn ' '.join(mine.seen).encode()");
            assert!(!said.contains("sent") && said.contains("refused"), "{said}");
        }
    }
    let (_own, peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let sent = linux::send_message(&peer, b"x", &[std::os::fd::AsFd::as_fd(&peer)]);
    control(sent.is_ok(), "to an end that does not refuse them");
}
