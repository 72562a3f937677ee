// SPDX-License-Identifier: Apache-2.0
//! Functions in Python, those that mean harm above all. Each is stopped; where it makes sense, the same
//! function is shown to do its harm with the defence off.

use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use objects::FailureCode;
use sandbox::process::{FunctionsOptions, Language, Weakness};
use sandbox::{Fault, Sandbox as _};

use crate::Case;
use crate::control::{control, look_alike, no_control};
use crate::host::Host;
use crate::world::{Packages, World, apply, attempt, has_landlock, options};

pub(crate) const CASES: &[Case] = &[
    ("randomness_differs", randomness_differs),
    ("threads_and_programs", threads_and_programs),
    ("standard_library", standard_library),
    ("what_is_shared_stays_shared", what_is_shared_stays_shared),
];

/// Attacks, and what misbehaves.
pub(crate) const HOSTILE: &[Case] = &[
    ("kill_then_delete_leaves_nothing", kill_then_delete_leaves_nothing),
    ("exception_flood", exception_flood),
    ("exceptions_that_lie", exceptions_that_lie),
    ("endless_printing", endless_printing),
    ("asleep_with_signals_blocked", asleep_with_signals_blocked),
    ("stopping_itself", stopping_itself),
    ("fork_bomb", fork_bomb),
    ("thread_bomb", thread_bomb),
    ("memory_bomb", memory_bomb),
    ("filling_tmp", filling_tmp),
    ("becoming_root", becoming_root),
    ("namespaces_and_mounts", namespaces_and_mounts),
    ("landlock_alone_stops_mounts", landlock_alone_stops_mounts),
    ("tracing_and_reading_others", tracing_and_reading_others),
    ("no_network", no_network),
    ("no_view_of_the_host", no_view_of_the_host),
    ("nothing_of_the_one_before", nothing_of_the_one_before),
    ("signals_reach_nobody_else", signals_reach_nobody_else),
    ("lies_on_the_channel", lies_on_the_channel),
    ("closing_the_channel", closing_the_channel),
    ("a_child_holds_the_channel", a_child_holds_the_channel),
    ("huge_results", huge_results),
    ("ending_itself", ending_itself),
    ("descriptors_are_closed", descriptors_are_closed),
    ("loading_that_never_ends", loading_that_never_ends),
];

fn fails(world: &World, lines: &str, code: FailureCode) -> Fault {
    let began = Instant::now();
    let fault = world.run(&apply(lines)).unwrap_err();
    assert_eq!(fault.code, code, "{lines}: {fault}");
    assert!(began.elapsed() < Duration::from_secs(15), "{lines} took {:?}", began.elapsed());
    world.assert_others_are_served();
    fault
}

/// Refused; done where `weakness` is.
fn refused(language: Language, attempts: &[&str], weakness: Weakness) {
    let world = World::new(language);
    for lines in attempts {
        let said = world.says(&attempt(lines));
        assert!(said.starts_with("refused"), "{lines}: {said}");
    }
    drop(world);
    let weak = World::with(options(language), weakness);
    for lines in attempts {
        let said = weak.says(&attempt(lines));
        control(said.starts_with("done"), format!("without the defence, {lines}: {said}"));
    }
}

fn exception_flood(language: Language) {
    let world = World::new(language);
    let fault = fails(
        &world,
        "def f(n):\n    try: f(n + 1)\n    except RecursionError as e: raise ValueError('x' * 10_000_000) from e\nf(0)",
        FailureCode::Trap,
    );
    assert!(fault.detail.len() <= 4096, "{}", fault.detail.len());
    let short = fails(&world, "raise ValueError('short')", FailureCode::Trap);
    look_alike(short.detail.starts_with("ValueError: short"), short);
}

fn exceptions_that_lie(language: Language) {
    let world = World::new(language);
    let fault = fails(
        &world,
        "class E(BaseException):\n    def __str__(self): raise self\n    __repr__ = __str__\nraise E",
        FailureCode::Trap,
    );
    assert!(fault.detail.len() <= 4096);
    fails(&world, "raise SystemExit(0)", FailureCode::Trap);
    fails(&world, "raise KeyboardInterrupt", FailureCode::Trap);
    fails(&world, "sys.stdout.close()\nsys.stdout = None\nraise ValueError", FailureCode::Trap);
    let honest = fails(&world, "raise KeyError('honest')", FailureCode::Trap);
    look_alike(honest.detail.starts_with("KeyError: 'honest'"), honest);
}

fn endless_printing(language: Language) {
    let world = World::new(language);
    let source = apply("line = 'x' * 1_000_000\nfor i in range(2000): print(line)\nreturn b'ok'");
    let id = world.created(&source);
    assert_eq!(world.invoke(id, &source, b"").unwrap(), b"ok");
    let log = world.functions.log(id).unwrap();
    assert!(log.len() < (1 << 20) + 200 && log.contains("dropped"), "{}", log.len());
    world.end(id);
    fails(&world, "while True: print('x' * 1000)", FailureCode::Deadline);
    // The descriptor below the stream has the same bound.
    assert_eq!(world.says("for i in range(1000): os.write(1, b'x' * 100_000)\nreturn b'ok'"), "ok");
    // Where more may be printed, nothing is dropped.
    let wide = World::with(FunctionsOptions { log_bytes_max: 4 << 20, ..options(language) }, Weakness::NONE);
    let less = apply("for i in range(20): print('x' * 100_000)\nreturn b'ok'");
    let id = wide.created(&less);
    assert_eq!(wide.invoke(id, &less, b"").unwrap(), b"ok");
    let log = wide.functions.log(id).unwrap();
    control(log.len() == 20 * 100_001 && !log.contains("dropped"), log.len());
    wide.end(id);
}

fn asleep_with_signals_blocked(language: Language) {
    let world = World::new(language);
    let lines = "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\ntime.sleep(4)\nreturn b'slept'";
    fails(&world, lines, FailureCode::Deadline);
    drop(world);
    let said = patient(language).says(lines);
    control(said == "slept", said);
}

fn stopping_itself(language: Language) {
    let world = World::new(language);
    // Nobody but the one that it leaves behind has it go on, and not in time.
    let lines = "pid = os.getpid()\nif os.fork() == 0:\n    time.sleep(4)\n    os.kill(pid, signal.SIGCONT)\n    os._exit(0)\n\
                 os.kill(pid, signal.SIGSTOP)\nreturn b'goes on'";
    fails(&world, lines, FailureCode::Deadline);
    drop(world);
    let said = patient(language).says(lines);
    control(said == "goes on", said);
}

/// With more time for each call.
fn patient(language: Language) -> World {
    let options = FunctionsOptions { call_timeout: Duration::from_secs(20), ..options(language) };
    World::with(options, Weakness::NONE)
}

/// Memory that so many processes do not use up.
const ROOMY_BYTES: u64 = 256 << 20;

/// With more room for processes.
fn roomy(language: Language) -> World {
    let options = FunctionsOptions { processes: 72, ..options(language) };
    World::with(options, Weakness::NONE).with_memory(ROOMY_BYTES)
}

fn fork_bomb(language: Language) {
    let world = World::new(language);
    // Its time or its memory is over first.
    let fault = world.run(&apply("while True:\n    try: os.fork()\n    except OSError: pass")).unwrap_err();
    assert!(matches!(fault.code, FailureCode::Deadline | FailureCode::Memory), "{fault}");
    world.assert_others_are_served();
    let count = "n = 0\ntry:\n    while n < 500:\n        if os.fork() == 0: time.sleep(100)\n        n += 1\nexcept OSError: pass\nreturn str(n).encode()";
    drop(world);
    // The limit of processes alone.
    let world = World::new(language).with_memory(ROOMY_BYTES);
    let forked: u32 = world.says(count).parse().unwrap();
    assert!(forked < 64, "{forked} processes");
    drop(world);
    let forked: u32 = roomy(language).says(count).parse().unwrap();
    control((64..72).contains(&forked), forked);
}

fn thread_bomb(language: Language) {
    let world = World::new(language);
    let count = "import threading\nn = 0\ntry:\n    while n < 500:\n        threading.Thread(target=time.sleep, args=(100,), daemon=True).start()\n        n += 1\nexcept RuntimeError: pass\nreturn str(n).encode()";
    let started: u32 = world.says(count).parse().unwrap();
    assert!(started < 64, "{started} threads");
    drop(world);
    let started: u32 = roomy(language).says(count).parse().unwrap();
    control((64..72).contains(&started), started);
}

fn memory_bomb(language: Language) {
    let world = World::new(language);
    fails(&world, "a = []\nwhile True: a.append(bytearray(1 << 20))", FailureCode::Memory);
    // Half of the limit is there.
    let said = world.says("a = bytearray(b'x') * (32 << 20)\nreturn b'ok'");
    assert_eq!(said, "ok");
    // What the interpreter keeps of objects that have ended is there for others, too.
    let objects = "a = [str(number) for number in range(1 << 20, (1 << 20) + 400_000)]\ndel a";
    let said = world.says(&format!("{objects}\na = bytearray(b'x') * (42 << 20)\nreturn b'ok'"));
    assert_eq!(said, "ok");
    let some = "a = bytearray(b'x') * (100 << 20)\nreturn b'ok'";
    fails(&world, some, FailureCode::Memory);
    let said = world.with_memory(256 << 20).says(some);
    control(said == "ok", said);
}

fn filling_tmp(language: Language) {
    let world = World::new(language);
    let fill = "n = 0\ntry:\n    while n < 100:\n        with open(f'/tmp/{n}', 'wb') as f: f.write(bytes(1 << 20))\n        n += 1\nexcept OSError: pass\nreturn str(n).encode()";
    let written: u32 = world.says(fill).parse().unwrap();
    assert!((8..=16).contains(&written), "{written} MiB");
    // Without the quota the memory of the container is what ends it.
    let unbounded = World::with(options(language), Weakness::NO_QUOTA);
    let said = unbounded.says(&fill.replace("n < 100", "n < 24"));
    control(said == "24" || said.starts_with("fault memory"), said);
    drop(unbounded);
    for path in ["/x", "/usr/x", "/dev/x", "/proc/x"] {
        let said = world.says(&attempt(&format!("open('{path}', 'w')")));
        assert!(said.starts_with("refused"), "{path}: {said}");
    }
}

fn becoming_root(language: Language) {
    refused(
        language,
        &["os.setuid(0)", "os.setgroups([0])", "os.setresgid(0, 0, 0)"],
        Weakness::ROOT.and(Weakness::ANY_CALL),
    );
    let world = World::new(language);
    let facts = "return '\\n'.join(l for l in open('/proc/self/status') if l.startswith(('Cap', 'NoNewPrivs', 'Seccomp:', 'Groups'))).encode()";
    let said = world.says(facts);
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(said.contains(&format!("{set}:\t0000000000000000")), "{said}");
    }
    assert!(said.contains("NoNewPrivs:\t1") && said.contains("Seccomp:\t2"), "{said}");
}

fn landlock_alone_stops_mounts(language: Language) {
    let mount = attempt("check(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))");
    let open = Weakness::ROOT.and(Weakness::ANY_CALL);
    if !has_landlock() {
        return no_control("this kernel has no Landlock");
    }
    assert!(World::with(options(language), open).says(&mount).starts_with("refused"));
    let weak = open.and(Weakness::NO_LANDLOCK);
    let said = World::with(options(language), weak).says(&mount);
    control(said.starts_with("done"), said);
}

fn namespaces_and_mounts(language: Language) {
    let weak = Weakness::ROOT.and(Weakness::ANY_CALL).and(Weakness::NO_LANDLOCK);
    refused(
        language,
        &[
            "check(libc.unshare(0x20000))",
            "check(libc.unshare(0x10000000))",
            "check(libc.mount(b'none', b'/tmp', b'tmpfs', 0, None))",
            "check(libc.setns(os.open('/proc/self/ns/net', os.O_RDONLY), 0))",
            "os.chroot('/tmp')",
        ],
        weak,
    );
}

fn tracing_and_reading_others(language: Language) {
    let trace = "pid = os.fork()\nif pid == 0:\n    time.sleep(100)\n    os._exit(0)\ncheck(libc.ptrace(16, pid, None, None))";
    let root = Weakness::ROOT.and(Weakness::ANY_CALL);
    refused(language, &[trace], root);
    let reads = ["open('/proc/1/environ').read()", "open('/proc/1/mem', 'rb')", "os.listdir('/proc/1/fd')"];
    refused(language, &reads, root.and(Weakness::WHOLE_PROC).and(Weakness::NO_LANDLOCK));
    let world = World::new(language);
    // Two functions at the same time do not see each other.
    let sleeper =
        apply("open('/tmp/secret', 'w').write('s3cret')\nos.environ['SECRET'] = 's3cret'\nreturn b''");
    let other = world.created(&sleeper);
    assert!(world.invoke(other, &sleeper, b"").is_ok());
    let look = "pids = sorted(int(p) for p in os.listdir('/proc') if p.isdigit())\nreturn repr((pids, os.listdir('/tmp'), 'SECRET' in os.environ, os.getpid())).encode()";
    let said = world.says(look);
    assert!(said.contains("[], False"), "{said}");
    assert!(!said.contains(", 5"), "more than its own processes: {said}");
    world.end(other);
}

fn no_network(language: Language) {
    let connect =
        "import socket\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\ns.connect(('192.0.2.1', 9))";
    let world = World::new(language);
    let said = world.says(&attempt(connect));
    assert!(said.starts_with("refused"), "{said}");
    // Where there is somebody to reach, with the wall down.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let local = attempt(&format!("import socket\nsocket.create_connection(('127.0.0.1', {port}), 2)"));
    let said = world.says(&local);
    assert!(said.starts_with("refused"), "{said}");
    let said = World::with(options(language), Weakness::HOST_NETWORK).says(&local);
    control(said == "done", said);
}

fn no_view_of_the_host(language: Language) {
    let world = World::new(language);
    let look =
        "return repr((sorted(os.listdir('/')), os.uname().nodename, dict(os.environ), sys.argv)).encode()";
    let said = world.says(look);
    for word in ["'home'", "'root', 'run'", "'var'", "'sys'", "sinew"] {
        assert!(!said.contains(word), "{word} is seen: {said}");
    }
    assert!(said.contains("'sandbox'"), "{said}");
    let seen =
        World::with(options(language), Weakness::OLD_ROOT).says("return repr(os.listdir('/old')).encode()");
    control(seen.contains("'var'"), seen);
}

fn nothing_of_the_one_before(language: Language) {
    let world = World::new(language);
    let leave = "open('/tmp/left', 'w').write('x')\nimport builtins\nbuiltins.left = 1\nsys.modules['left'] = sys\nreturn b'ok'";
    assert_eq!(world.says(leave), "ok");
    let find = "import builtins\nreturn repr((os.path.exists('/tmp/left'), hasattr(builtins, 'left'), 'left' in sys.modules)).encode()";
    assert_eq!(world.says(find), "(False, False, False)");
    // The next call of the same instance finds all of it.
    let both = format!("if x == b'leave':\n    {}\n{find}", leave.replace('\n', "\n    "));
    let both = apply(&both);
    let id = world.created(&both);
    assert_eq!(world.invoke(id, &both, b"leave").unwrap(), b"ok");
    let found = String::from_utf8(world.invoke(id, &both, b"find").unwrap()).unwrap();
    control(found == "(True, True, True)", found);
    world.end(id);
}

fn signals_reach_nobody_else(language: Language) {
    let world = World::new(language);
    let pid = world.functions.template_pid().unwrap();
    for target in ["0", "-1"] {
        // It may hit itself.
        _ = world.run(&apply(&format!("os.kill({target}, 9)\nreturn b''")));
        assert_eq!(world.functions.template_pid().unwrap(), pid, "the template was hit");
        world.assert_others_are_served();
    }
    let signal = attempt(&format!("os.kill({pid}, 0)"));
    assert!(world.says(&signal).starts_with("refused 3"), "no such process");
    // Among the host's processes the same number is somebody, who belongs to
    // another user; and so may root signal him.
    let said = World::with(options(language), Weakness::HOST_PROCESSES).says(&signal);
    assert!(said.starts_with("refused 1"), "{said}");
    let weak = Weakness::HOST_PROCESSES.and(Weakness::ROOT).and(Weakness::NO_LANDLOCK);
    let weak = World::with(options(language), weak);
    let signal = attempt(&format!("os.kill({}, 0)", weak.functions.template_pid().unwrap()));
    let said = weak.says(&signal);
    control(said == "done", said);
}

fn lies_on_the_channel(language: Language) {
    let world = World::new(language);
    for words in [
        "os.urandom(100)",
        "b'\\xff\\xff\\xff\\xff\\x05\\x01\\0\\0\\0'",
        "b'\\0\\0\\0\\0\\x09\\0\\0\\0\\0'",
        "b'\\x0a\\0\\0\\0\\x01\\0\\0\\0\\0SNWP\\x04\\0\\0\\0\\0\\0'",
        "b'\\x02\\0\\0\\0\\x08\\x01\\0\\0\\0\\x01x' * 1_000_000",
        // More of a body that does not come.
        "b'\\x04\\0\\0\\0\\x11\\x01\\0\\0\\0\\x01\\0\\0\\0'",
        // An answer to a call that there is not.
        "b'\\x02\\0\\0\\0\\x05\\x07\\0\\0\\0hi'",
    ] {
        let fault = world.run(&apply(&format!("os.write(3, {words})\ntime.sleep(100)"))).unwrap_err();
        // Random bytes may also promise a frame that does not come.
        assert!(matches!(fault.code, FailureCode::Trap | FailureCode::Deadline), "{words}: {fault}");
        world.assert_others_are_served();
    }
    // A forged result is the function's own result.
    let said = world.says("os.write(3, b'\\x02\\0\\0\\0\\x05\\x01\\0\\0\\0hi')\ntime.sleep(1)");
    look_alike(said == "hi", said);
}

fn closing_the_channel(language: Language) {
    let world = World::new(language);
    fails(&world, "os.close(3)\ntime.sleep(100)", FailureCode::Trap);
    // Another descriptor is the function's to close.
    let said = world.says("os.close(os.open('/dev/null', os.O_RDONLY))\nreturn b'served'");
    look_alike(said == "served", said);
}

fn a_child_holds_the_channel(language: Language) {
    let world = World::new(language);
    let lines = "fd = os.dup(3)\nif os.fork() == 0: time.sleep(1000)\nos._exit(0)";
    fails(&world, lines, FailureCode::Trap);
    // It is the process's end that is noticed, not the child.
    let said = world.says(&lines.replace("os._exit(0)", "return b'served'"));
    look_alike(said == "served", said);
}

fn huge_results(language: Language) {
    let world =
        World::with(FunctionsOptions { result_bytes_max: 1 << 20, ..options(language) }, Weakness::NONE);
    let fault = fails(&world, "return bytes((1 << 20) + 1)", FailureCode::BadResult);
    assert!(fault.detail.contains("1048577"), "{fault}");
    fails(&world, "return 'text'", FailureCode::BadResult);
    fails(&world, "os.write(3, b'\\x01\\0\\x10\\0\\x05\\x01\\0\\0\\0')\ntime.sleep(100)", FailureCode::Trap);
    assert_eq!(world.says("return bytes(1 << 20)").len(), 1 << 20);
    let wide =
        World::with(FunctionsOptions { result_bytes_max: 2 << 20, ..options(language) }, Weakness::NONE);
    let more = wide.says("return bytes((1 << 20) + 1)").len();
    control(more == (1 << 20) + 1, more);
}

fn ending_itself(language: Language) {
    let world = World::new(language);
    for (lines, text) in [
        ("os._exit(7)", "status 7"),
        ("os.abort()", "SIGABRT"),
        ("ctypes.string_at(0)", "SIGSEGV"),
        ("os.kill(os.getpid(), 15)", "SIGTERM"),
    ] {
        let fault = fails(&world, lines, FailureCode::Trap);
        assert!(fault.detail.contains(text), "{lines}: {fault}");
    }
    // A signal that is handled ends nothing.
    let handled = "signal.signal(15, signal.SIG_IGN)\nos.kill(os.getpid(), 15)\nreturn b'alive'";
    let said = world.says(handled);
    look_alike(said == "alive", said);
}

fn descriptors_are_closed(language: Language) {
    let world = World::new(language);
    let look = "found = []\nfor fd in range(256):\n    try: os.fstat(fd); found.append(fd)\n    except OSError: pass\nreturn repr(found).encode()";
    assert_eq!(world.says(look), "[0, 1, 2, 3]");
    // What is open is seen.
    let said = world.says(&format!("os.open('/tmp', os.O_RDONLY)\nos.pipe()\n{look}"));
    look_alike(said == "[0, 1, 2, 3, 4, 5, 6]", said);
}

fn loading_that_never_ends(language: Language) {
    let options = FunctionsOptions { load_timeout: Duration::from_secs(1), ..options(language) };
    let world = World::with(options, Weakness::NONE);
    let began = Instant::now();
    let slow = "import time\ntime.sleep(3)\ndef apply(x):\n    return b'loaded'\n";
    for endless in ["while True: pass", slow] {
        let created = world.functions.create(&[world.spec(endless)]).pop().unwrap();
        assert!(created.unwrap_err().to_string().contains("took too long"));
    }
    assert!(began.elapsed() < Duration::from_secs(20));
    world.assert_others_are_served();
    drop(world);
    // Where it may take longer, it holds its place as long as it likes.
    let said = World::new(language).run(slow);
    control(said.as_deref() == Ok(b"loaded"), "slow loading");
}

fn randomness_differs(language: Language) {
    let world = World::new(language);
    // Also where all of it was imported, and drawn from, before the fork.
    let drawn_before = "import random, ssl, secrets, uuid, tempfile\nrandom.random(), ssl.RAND_bytes(8), secrets.token_hex(), uuid.uuid4()\n";
    let packages = Packages::new("imported.py", drawn_before);
    let imported = World::with(packages.imported(language), Weakness::NONE);
    assert_eq!(imported.functions.why_cold(), None);
    for world in [&world, &imported] {
        for draw in [
            "random.random()",
            "random.SystemRandom().random()",
            "uuid.uuid4()",
            "ssl.RAND_bytes(8)",
            "secrets.token_hex()",
            "os.urandom(8)",
            "next(tempfile._get_candidate_names())",
        ] {
            let lines = format!("import random, ssl, secrets, uuid, tempfile\nreturn repr({draw}).encode()");
            let drawn: std::collections::BTreeSet<_> = (0..3).map(|_| world.says(&lines)).collect();
            assert_eq!(drawn.len(), 3, "{draw}: {drawn:?}");
            assert!(drawn.iter().all(|text| !text.starts_with("fault")), "{drawn:?}");
        }
    }
    drop(imported);
    // The negative control: what is not random is the same everywhere.
    assert_eq!(world.says("return str(hash('x')).encode()"), world.says("return str(hash('x')).encode()"));
}

/// The collector leaves alone what came with the fork, so that its pages stay
/// the template's.
fn what_is_shared_stays_shared(language: Language) {
    let world = World::new(language);
    let measure = |before: &str| {
        let lines = format!(
            "import gc\n\
             def own():\n    lines = open('/proc/self/smaps_rollup').read().split('\\n')\n    \
             return sum(int(l.split()[1]) for l in lines if l.startswith('Private_Dirty'))\n\
             frozen = gc.get_freeze_count()\n{before}\nbefore = own()\ngc.collect()\nreturn b'%d %d' % (frozen, own() - before)"
        );
        let said = world.says(&lines);
        let mut numbers = said.split(' ').map(|number| number.parse::<u64>().unwrap());
        (numbers.next().unwrap(), numbers.next().unwrap())
    };
    let (frozen, copied_kib) = measure("pass");
    assert!(frozen > 5000, "{frozen} objects are frozen");
    // The control: a collection that looks at them copies their pages.
    let (_, unfrozen_kib) = measure("gc.unfreeze()");
    assert!(copied_kib * 4 < unfrozen_kib, "{copied_kib} KiB copied; not frozen {unfrozen_kib} KiB");
}

fn threads_and_programs(language: Language) {
    let world = World::new(language);
    let threads = "import concurrent.futures as f\nwith f.ThreadPoolExecutor(4) as pool: return str(sum(pool.map(abs, range(-9, 0)))).encode()";
    assert_eq!(world.says(threads), "45");
    let program = "import subprocess\nreturn subprocess.run(['/bin/echo', 'hello'], capture_output=True, check=True).stdout";
    assert_eq!(world.says(program), "hello\n");
    let fork = "r, w = os.pipe()\nif os.fork() == 0:\n    os.write(w, b'child')\n    os._exit(0)\nos.wait()\nreturn os.read(r, 9)";
    assert_eq!(world.says(fork), "child");
}

fn standard_library(language: Language) {
    let world = World::new(language);
    let source = "import json, re, datetime, decimal, hashlib, zlib, csv, io, sqlite3, tempfile, socket, threading, asyncio, pathlib\n\
        async def f(): return 4\n\
        with tempfile.NamedTemporaryFile() as t: t.write(b'x'); t.flush(); size = os.path.getsize(t.name)\n\
        db = sqlite3.connect(':memory:'); n = db.execute('select 2').fetchone()[0]\n\
        return json.dumps([size, n, asyncio.run(f()), hashlib.sha256(b'').hexdigest()[:4]]).encode()";
    assert_eq!(world.says(source), "[1, 2, 4, \"e3b0\"]");
}

fn kill_then_delete_leaves_nothing(language: Language) {
    let world = World::new(language);
    let source =
        apply("import subprocess\nfor i in range(5): subprocess.Popen(['/bin/sleep', '1000'])\nreturn b''");
    world.assert_others_are_served();
    let before = Host::at_rest();
    let id = world.created(&source);
    assert_eq!(world.invoke(id, &source, b"").unwrap(), b"");
    let now = Host::look().processes.len();
    assert!(now >= before.processes.len() + 6, "{before:?}, {now}");
    world.end(id);
    before.assert_unchanged();
    drop(world);
    // With process numbers of its own a container takes them with it.
    let weak = World::with(options(language), Weakness::HOST_PROCESSES.and(Weakness::NO_GROUP));
    let before = Host::at_rest();
    assert_eq!(weak.run(&source).unwrap(), b"");
    let left: Vec<u32> = Host::look().processes.difference(&before.processes).copied().collect();
    for process in left.iter().filter_map(|pid| linux::open_process(*pid).ok()) {
        linux::kill_process(process.as_fd()).unwrap();
    }
    before.assert_unchanged();
    control(left.len() >= 5, format!("{} are left", left.len()));
}
