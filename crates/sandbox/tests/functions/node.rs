// SPDX-License-Identifier: Apache-2.0
//! Functions in JavaScript, those that mean harm above all. Each is stopped;
//! where it makes sense, the same function is shown to do its harm with the
//! defence off.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use objects::FailureCode;
use sandbox::process::{FunctionsOptions, Language, Weakness};
use sandbox::{Fault, Sandbox as _};

use crate::Case;
use crate::control::{control, look_alike, no_control};
use crate::world::{Packages, World, has_landlock, options};

pub(crate) const CASES: &[Case] = &[
    ("values_and_bytes", values_and_bytes),
    ("randomness_differs", randomness_differs),
    ("timers_sockets_and_threads", timers_sockets_and_threads),
    ("programs", programs),
    ("standard_library", standard_library),
    ("output_and_globals", output_and_globals),
    ("what_goes_wrong_is_a_fault", what_goes_wrong_is_a_fault),
    ("stacks_name_the_functions_own_lines", stacks_name_the_functions_own_lines),
    ("imports_are_shared_but_not_their_randomness", imports_are_shared_but_not_their_randomness),
];

/// Attacks, and what misbehaves.
pub(crate) const HOSTILE: &[Case] = &[
    ("exceptions_that_lie", exceptions_that_lie),
    ("endless_printing", endless_printing),
    ("stopping_itself", stopping_itself),
    ("process_bomb", process_bomb),
    ("thread_bomb", thread_bomb),
    ("memory_bomb", memory_bomb),
    ("filling_tmp", filling_tmp),
    ("becoming_root", becoming_root),
    ("landlock_alone_stops_mounts", landlock_alone_stops_mounts),
    ("reading_others", reading_others),
    ("no_network", no_network),
    ("no_view_of_the_host", no_view_of_the_host),
    ("nothing_of_the_one_before", nothing_of_the_one_before),
    ("signals_reach_nobody_else", signals_reach_nobody_else),
    ("lies_on_the_channel", lies_on_the_channel),
    ("a_child_holds_the_channel", a_child_holds_the_channel),
    ("huge_results", huge_results),
    ("ending_itself", ending_itself),
    ("descriptors_are_closed", descriptors_are_closed),
    ("loading_that_never_ends", loading_that_never_ends),
];

/// A function with these lines as its body.
fn apply(lines: &str) -> String {
    format!(
        "const fs = require('fs');\nconst say = (x) => Buffer.from(typeof x === 'string' ? x : JSON.stringify(x));\n\
         exports.apply = async (x) => {{\n{lines}\n}};\n"
    )
}

/// A function that tries something and says whether it was refused.
fn attempt(lines: &str) -> String {
    apply(&format!(
        "try {{\n{lines}\nreturn say('done');\n}} catch (e) {{\nreturn say(`refused ${{e.code ?? e.message}}`);\n}}"
    ))
}

fn says(world: &World, source: &str) -> String {
    match world.run(source) {
        Ok(bytes) => String::from_utf8(bytes).unwrap(),
        Err(fault) => format!("fault {fault}"),
    }
}

fn fails(world: &World, lines: &str, code: FailureCode) -> Fault {
    let began = Instant::now();
    let fault = world.run(&apply(lines)).unwrap_err();
    assert_eq!(fault.code, code, "{lines}: {fault}");
    assert!(began.elapsed() < Duration::from_secs(15), "{lines} took {:?}", began.elapsed());
    world.assert_others_are_served();
    fault
}

/// Refused; done where `weakness` is.
fn refused(attempts: &[&str], weakness: Weakness) {
    let world = World::new(Language::Node);
    for lines in attempts {
        let said = says(&world, &attempt(lines));
        assert!(said.starts_with("refused"), "{lines}: {said}");
    }
    drop(world);
    let weak = World::with(options(Language::Node), weakness);
    for lines in attempts {
        let said = says(&weak, &attempt(lines));
        control(said.starts_with("done"), format!("without the defence, {lines}: {said}"));
    }
}

fn values_and_bytes(language: Language) {
    let world = World::new(language);
    for (lines, said) in [
        ("return Buffer.from('a')", "a"),
        ("return new Uint8Array([98, 99]).subarray(1)", "c"),
        ("return new TextEncoder().encode('d').buffer", "d"),
        ("return new Promise((done) => setTimeout(() => done(Buffer.from('e')), 5))", "e"),
        ("return say(typeof gc + typeof require + typeof process.argv[1])", "undefinedfunctionundefined"),
        ("return say([this === undefined, __filename])", "[false,\"function.js\"]"),
    ] {
        assert_eq!(says(&world, &apply(lines)), said, "{lines}");
    }
    let long = vec![b'x'; 5 << 20];
    let id = world.created(world.sources.echo);
    assert_eq!(world.invoke(id, world.sources.echo, &long).unwrap(), long);
    assert_eq!(world.invoke(id, world.sources.echo, b"").unwrap(), b"");
    world.end(id);
}

fn randomness_differs(language: Language) {
    // What an import draws in the template must not be what is drawn after it.
    let world = World::new(language);
    for draw in [
        "Math.random()",
        "crypto.randomUUID()",
        "require('crypto').randomUUID()",
        "require('crypto').randomInt(2 ** 40)",
        "require('crypto').randomBytes(8).toString('hex')",
        "await new Promise((done) => new (require('worker_threads').Worker)('require(\"worker_threads\").parentPort.postMessage(Math.random())', { eval: true }).on('message', done))",
    ] {
        let source = apply(&format!("return say(String({draw}))"));
        let drawn: BTreeSet<_> = (0..3).map(|_| says(&world, &source)).collect();
        assert_eq!(drawn.len(), 3, "{draw}: {drawn:?}");
        assert!(drawn.iter().all(|text| !text.starts_with("fault")), "{drawn:?}");
    }
    // The negative control: what is not random is the same everywhere.
    let source = apply("return say(String(performance.timeOrigin))");
    assert_eq!(says(&world, &source), says(&world, &source));
}

fn timers_sockets_and_threads(language: Language) {
    let world = World::new(language);
    let socket = "const net = require('net');\nconst server = net.createServer((s) => s.end('over a socket')).listen('/tmp/s');\n\
        await new Promise((done) => server.once('listening', done));\nlet text = '';\nfor await (const piece of net.connect('/tmp/s')) text += piece;\nserver.close();\nreturn say(text)";
    for (lines, said) in [
        (
            "let n = 0; await new Promise((done) => { const t = setInterval(() => { if (++n === 3) { clearInterval(t); done(); } }, 2); }); return say([n])",
            "[3]",
        ),
        (socket, "over a socket"),
        ("await fs.promises.writeFile('/tmp/f', 'file'); return fs.promises.readFile('/tmp/f')", "file"),
        (
            "return new Promise((done) => require('crypto').pbkdf2('a', 'b', 1, 8, 'sha1', (e, key) => done(say(key.toString('hex')))))",
            "b08f749c",
        ),
        (
            "return new Promise((done) => require('dns').lookup('127.0.0.1', (e, address) => done(say(address))))",
            "127.0.0.1",
        ),
        (
            "return new Promise((done) => require('zlib').gzip('x', (e, z) => done(require('zlib').gunzipSync(z))))",
            "x",
        ),
        (
            "const { Worker } = require('worker_threads'); return new Promise((done) => new Worker('require(\"worker_threads\").parentPort.postMessage(6 * 7)', { eval: true }).on('message', (n) => done(say([n]))))",
            "[42]",
        ),
        (
            "await WebAssembly.compile(new Uint8Array([0, 97, 115, 109, 1, 0, 0, 0])); return say('compiled')",
            "compiled",
        ),
        (
            "const { webcrypto } = require('crypto'); return say([(await webcrypto.subtle.digest('SHA-1', x)).byteLength])",
            "[20]",
        ),
        ("return say((await import('node:path')).sep)", "/"),
        (
            "process.once('SIGUSR2', () => (globalThis.got = 1)); process.kill(process.pid, 'SIGUSR2'); await new Promise((done) => setTimeout(done, 50)); return say([got])",
            "[1]",
        ),
        (
            "const { port1, port2 } = new MessageChannel(); port1.postMessage('p'); return new Promise((done) => port2.once('message', (m) => { port2.close(); done(say(m)); }))",
            "p",
        ),
    ] {
        let told = says(&world, &apply(lines));
        assert!(told.starts_with(said), "{lines}: {told}");
    }
    // Garbage that is collected and code that is compiled anew need no thread.
    let busy = "let s = 0; for (let i = 0; i < 3e6; i++) { s += [i, { i }][1].i % 7; } return say([s])";
    assert_eq!(says(&world, &apply(busy)), "[8999994]");
}

fn programs(language: Language) {
    let world = World::new(language);
    let run = "return require('child_process').execFileSync('/bin/echo', ['hello'])";
    assert_eq!(says(&world, &apply(run)), "hello\n");
    let spawn = "const child = require('child_process').spawn('/bin/sh', ['-c', 'exit 3']); return new Promise((done) => child.on('exit', (code) => done(say([code]))))";
    assert_eq!(says(&world, &apply(spawn)), "[3]");
    let leave = apply(
        "for (let i = 0; i < 5; i++) require('child_process').spawn('/bin/sleep', ['1000'], { detached: true, stdio: 'ignore' }).unref();\nreturn say('left')",
    );
    assert_eq!(says(&world, &leave), "left");
}

fn standard_library(language: Language) {
    let world = World::new(language);
    let lines = "const m = ['assert', 'async_hooks', 'buffer', 'child_process', 'crypto', 'dgram', 'diagnostics_channel', 'dns', 'events', 'http', 'http2', 'https', 'module', 'net', 'os', 'path', 'perf_hooks', 'querystring', 'readline', 'stream', 'string_decoder', 'timers', 'timers/promises', 'tls', 'url', 'util', 'v8', 'vm', 'worker_threads', 'zlib'];\n\
        for (const name of m) require(name);\nreturn say([m.length, process.pid > 0, process.pid === Number(fs.readlinkSync('/proc/self')), process.cwd()])";
    assert_eq!(says(&world, &apply(lines)), "[30,true,true,\"/\"]");
}

fn output_and_globals(language: Language) {
    let world = World::new(language);
    // What timers print between two calls is bounded, and harms no call.
    let ticking = apply("setInterval(() => console.log('x'.repeat(1e5)), 1); return say('ok')");
    let id = world.created(&ticking);
    for _ in 0..3 {
        assert_eq!(world.invoke(id, &ticking, b"").unwrap(), b"ok");
        std::thread::sleep(Duration::from_millis(100));
    }
    world.end(id);
    let source = apply(
        "globalThis.n = (globalThis.n ?? 0) + 1;\nconsole.log('call', n);\nawait null;\nconsole.error('late');\nprocess.stdout.write('raw\\n');\nreturn say([n])",
    );
    let id = world.created(&source);
    assert_eq!(world.invoke(id, &source, b"").unwrap(), b"[1]");
    assert_eq!(world.invoke(id, &source, b"").unwrap(), b"[2]");
    assert_eq!(world.functions.log(id).unwrap(), "call 2\nlate\nraw\n");
    world.end(id);
}

fn what_goes_wrong_is_a_fault(language: Language) {
    let world = World::new(language);
    for (lines, code, text) in [
        ("throw new TypeError('no good')", FailureCode::Trap, "TypeError: no good"),
        ("throw 'a text'", FailureCode::Trap, "string: a text"),
        ("throw null", FailureCode::Trap, "null: null"),
        (
            "await Promise.reject(new Error('inner', { cause: new RangeError('deep') }))",
            FailureCode::Trap,
            "caused by RangeError: deep",
        ),
        (
            "setTimeout(() => { throw new Error('uncaught'); }); await new Promise(() => {})",
            FailureCode::Trap,
            "Error: uncaught",
        ),
        ("Promise.reject(new Error('unhandled')); return say('x')", FailureCode::Trap, "Error: unhandled"),
        ("const f = () => f(); f()", FailureCode::Trap, "RangeError: Maximum call stack"),
        ("return new Promise(() => {})", FailureCode::Deadline, "took too long"),
        ("return 7", FailureCode::BadResult, "number, not bytes"),
        ("return 'text'", FailureCode::BadResult, "string, not bytes"),
        ("return undefined", FailureCode::BadResult, "undefined, not bytes"),
        ("return { a: 1 }", FailureCode::BadResult, "Object, not bytes"),
        ("process.exit(3)", FailureCode::Trap, "status 3"),
        ("process.exit()", FailureCode::Trap, "status 0"),
    ] {
        let fault = world.run(&apply(lines)).unwrap_err();
        assert_eq!(fault.code, code, "{lines}: {fault}");
        assert!(fault.detail.contains(text), "{lines}: {fault}");
    }
    let create = |source: &str| world.functions.create(&[world.spec(source)]).pop().unwrap();
    for (source, text) in [
        ("exports.apply = (", "SyntaxError"),
        ("exports.other = 1", "exports.apply is not a function"),
        ("throw new Error('at once')", "at once"),
        ("require('no-such-module')", "no-such-module"),
    ] {
        let refused = create(source).unwrap_err().to_string();
        assert!(refused.contains(text), "{source}: {refused}");
    }
}

fn stacks_name_the_functions_own_lines(language: Language) {
    let world = World::new(language);
    let fault = world.run("exports.apply = (x) => {\n  return JSON.parse('{');\n};\n").unwrap_err();
    assert!(fault.detail.contains("SyntaxError: "), "{fault}");
    assert!(fault.detail.contains("at exports.apply (function.js:2:15)"), "{fault}");
    for word in ["[eval]", "<template>", "/usr/bin", "Instance.", "node:internal"] {
        assert!(!fault.detail.contains(word), "{word}: {fault}");
    }
    let again = world.run("exports.apply = (x) => {\n  return JSON.parse('{');\n};\n").unwrap_err();
    assert_eq!(fault, again, "the same call gives the same text");
}

fn imports_are_shared_but_not_their_randomness(language: Language) {
    // What an import draws, and that it was imported once, for all.
    let source = "exports.drawn = [Math.random(), require('crypto').randomUUID(), require('crypto').randomInt(9)];\nexports.pid = process.pid;";
    let packages = Packages::new("imported.js", source);
    let world = World::with(packages.imported(language), Weakness::NONE);
    let draw = apply(
        "const i = require('imported');\nreturn say([i.pid !== process.pid, Math.random(), require('crypto').randomUUID(), require('crypto').randomInt(2 ** 40)])",
    );
    let (one, other) = (says(&world, &draw), says(&world, &draw));
    assert!(one.starts_with("[true,") && other.starts_with("[true,"), "{one} {other}");
    let (one, other): (Vec<_>, Vec<_>) = (one.split(',').collect(), other.split(',').collect());
    assert!((1..4).all(|at| one[at] != other[at]), "{one:?} {other:?}");
}

fn exceptions_that_lie(language: Language) {
    let world = World::new(language);
    let long = fails(&world, "throw new Error('x'.repeat(1e7))", FailureCode::Trap);
    assert!(long.detail.len() <= 4096, "{}", long.detail.len());
    for lines in [
        "throw { get stack() { throw 1; }, get name() { throw 2; } }",
        "throw Object.assign(new Error(), { toString() { throw 1; }, name: { toString() { throw 2; } } })",
        "throw new Proxy({}, { get() { throw 1; } })",
        "Error.prepareStackTrace = () => { throw 1; }; throw new Error('x')",
        "const e = new Error('loop'); e.cause = e; throw e",
        "delete process.stdout; globalThis.console = null; throw new Error('x')",
    ] {
        fails(&world, lines, FailureCode::Trap);
    }
    // The control: one that does not lie is told as it is.
    let honest = fails(&world, "throw new RangeError('honest')", FailureCode::Trap);
    look_alike(honest.detail.starts_with("RangeError: honest"), honest);
}

fn endless_printing(language: Language) {
    let world = World::new(language);
    let source = apply(
        "const line = 'x'.repeat(1e6); for (let i = 0; i < 200; i++) console.log(line); return say('ok')",
    );
    let id = world.created(&source);
    assert_eq!(world.invoke(id, &source, b"").unwrap(), b"ok");
    let log = world.functions.log(id).unwrap();
    assert!(log.len() < (1 << 20) + 200 && log.contains("dropped"), "{}", log.len());
    world.end(id);
    // The control: where more may be printed, nothing is dropped.
    let options = FunctionsOptions { log_bytes_max: 4 << 20, ..options(language) };
    let wide = World::with(options, Weakness::NONE);
    let less = apply(
        "const line = 'x'.repeat(1e5); for (let i = 0; i < 20; i++) console.log(line); return say('ok')",
    );
    let id = wide.created(&less);
    assert_eq!(wide.invoke(id, &less, b"").unwrap(), b"ok");
    let log = wide.functions.log(id).unwrap();
    control(log.len() == 20 * 100_001 && !log.contains("dropped"), log.len());
    wide.end(id);
    drop(wide);
    fails(&world, "for (;;) console.log('x'.repeat(1000))", FailureCode::Deadline);
    // The descriptor below the stream leads nowhere.
    assert_eq!(
        says(
            &world,
            &apply("for (let i = 0; i < 100; i++) fs.writeSync(1, Buffer.alloc(1e5)); return say('ok')")
        ),
        "ok"
    );
}

fn stopping_itself(language: Language) {
    let world = World::new(language);
    fails(&world, "process.kill(process.pid, 'SIGSTOP'); await new Promise(() => {})", FailureCode::Deadline);
    fails(&world, "Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0)", FailureCode::Deadline);
    let long = "return say(Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 4000))";
    fails(&world, long, FailureCode::Deadline);
    drop(world);
    // The control: where there is more time, it takes it.
    let options = FunctionsOptions { call_timeout: Duration::from_secs(20), ..options(language) };
    let said = says(&World::with(options, Weakness::NONE), &apply(long));
    control(said == "timed-out", said);
}

fn process_bomb(language: Language) {
    let world = World::new(language);
    let count = "const { spawn } = require('child_process'); let n = 0;\nfor (let i = 0; i < 100; i++) { const c = spawn('/bin/sleep', ['100'], { stdio: 'ignore' }); c.on('error', () => {}); if (c.pid) n++; }\nreturn say([n])";
    let started: Vec<u32> = read_numbers(&says(&world, &apply(count)));
    assert!(started[0] < 64, "{started:?} processes");
    // The control: with more room for processes, all of them start.
    let wide = World::with(FunctionsOptions { processes: 400, ..options(language) }, Weakness::NONE);
    let said = says(&wide, &apply(count));
    control(said == "[100]", said);
    drop(wide);
    world.assert_others_are_served();
}

fn thread_bomb(language: Language) {
    let options = FunctionsOptions { processes: 8, ..options(language) };
    let world = World::with(options, Weakness::NONE);
    let bomb = "const { Worker } = require('worker_threads');\nfor (let i = 0; i < 50; i++) new Worker('setInterval(() => {}, 1000)', { eval: true });\nawait new Promise(() => {})";
    let fault = world.run(&apply(bomb)).unwrap_err();
    let expected = [FailureCode::Trap, FailureCode::Memory, FailureCode::Deadline];
    assert!(expected.contains(&fault.code), "{fault}");
    world.assert_others_are_served();
    drop(world);
    // With room for them, so many threads start as do not there.
    let some = "const { Worker } = require('worker_threads');\nconst w = Array.from({ length: 9 }, () => new Worker('setInterval(() => {}, 1000)', { eval: true }));\nawait Promise.all(w.map((w) => new Promise((done) => w.on('online', done))));\nreturn say('started')";
    let narrow = FunctionsOptions { processes: 8, ..crate::world::options(language) };
    let said = says(&World::with(narrow, Weakness::NONE).with_memory(512 << 20), &apply(some));
    assert!(said.starts_with("fault"), "{said}");
    let wide = World::with(crate::world::options(language), Weakness::NONE).with_memory(512 << 20);
    let said = says(&wide, &apply(some));
    control(said == "started", said);
}

fn memory_bomb(language: Language) {
    let world = World::new(language);
    fails(&world, "const a = []; for (;;) a.push(Buffer.alloc(1 << 20, 1))", FailureCode::Memory);
    // Half of the limit is there.
    let said = says(&world, &apply("Buffer.alloc(32 << 20, 1); return say('ok')"));
    assert_eq!(said, "ok");
    let some = "Buffer.alloc(100 << 20, 1); return say('ok')";
    fails(&world, some, FailureCode::Memory);
    let said = says(&world.with_memory(512 << 20), &apply(some));
    control(said == "ok", said);
}

fn filling_tmp(language: Language) {
    let world = World::new(language);
    let fill = "let n = 0; try { for (; n < 100; n++) fs.writeFileSync(`/tmp/${n}`, Buffer.alloc(1 << 20)); } catch {} return say([n])";
    let written = read_numbers(&says(&world, &apply(fill)));
    assert!((8..=16).contains(&written[0]), "{written:?} MiB");
    // Without the quota the memory of the container is what ends it.
    let unbounded = World::with(options(language), Weakness::NO_QUOTA);
    let said = says(&unbounded, &apply(&fill.replace("n < 100", "n < 24")));
    control(said == "[24]" || said.starts_with("fault memory"), said);
    for path in ["/x", "/usr/x", "/dev/x", "/proc/x"] {
        let said = says(&world, &attempt(&format!("fs.writeFileSync('{path}', '')")));
        assert!(said.starts_with("refused"), "{path}: {said}");
    }
}

fn becoming_root(language: Language) {
    refused(
        &["process.setuid(0)", "process.setgroups([0])", "process.setgid(0)"],
        Weakness::ROOT.and(Weakness::ANY_CALL),
    );
    let world = World::new(language);
    let said = says(&world, &apply("return fs.readFileSync('/proc/self/status')"));
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert!(said.contains(&format!("{set}:\t0000000000000000")), "{said}");
    }
    assert!(said.contains("NoNewPrivs:\t1") && said.contains("Seccomp:\t2"), "{said}");
}

fn landlock_alone_stops_mounts(language: Language) {
    if !has_landlock() {
        return no_control("this kernel has no Landlock");
    }
    let mount =
        attempt("require('child_process').execFileSync('/bin/mount', ['-t', 'tmpfs', 'none', '/tmp'])");
    let open = Weakness::ROOT.and(Weakness::ANY_CALL);
    let said = says(&World::with(options(language), open), &mount);
    assert!(said.starts_with("refused"), "{said}");
    let weak = open.and(Weakness::NO_LANDLOCK);
    let said = says(&World::with(options(language), weak), &mount);
    control(said.starts_with("done"), said);
}

fn reading_others(language: Language) {
    let reads =
        ["fs.readFileSync('/proc/1/environ')", "fs.openSync('/proc/1/mem')", "fs.readdirSync('/proc/1/fd')"];
    let open = Weakness::ROOT.and(Weakness::ANY_CALL).and(Weakness::WHOLE_PROC);
    refused(&reads, open.and(Weakness::NO_LANDLOCK));
    let world = World::new(language);
    // Two functions at the same time do not see each other.
    let secret =
        apply("fs.writeFileSync('/tmp/secret', 's3cret'); process.env.SECRET = 's3cret'; return say('')");
    let other = world.created(&secret);
    assert!(world.invoke(other, &secret, b"").is_ok());
    let look = "return say([fs.readdirSync('/tmp'), process.env.SECRET ?? null, fs.readdirSync('/proc').filter((n) => n > '0' && n < ':').length])";
    let said = says(&world, &apply(look));
    assert!(said.starts_with("[[],null,"), "{said}");
    assert!(read_numbers(said.rsplit(',').next().unwrap())[0] <= 2, "more than its own processes: {said}");
    world.end(other);
}

fn no_network(language: Language) {
    let connect = |host: &str| {
        attempt(&format!(
            "await new Promise((done, fail) => require('net').connect(9, '{host}').on('connect', done).on('error', fail))"
        ))
    };
    // Where there is somebody to reach, with the wall down.
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let local = connect("127.0.0.1")
        .replace("connect(9,", &format!("connect({},", listener.local_addr().unwrap().port()));
    let said = says(&World::with(options(language), Weakness::HOST_NETWORK), &local);
    control(said == "done", said);
    let world = World::new(language);
    let said = says(&world, &local);
    assert!(said.starts_with("refused"), "{said}");
    let said = says(&world, &connect("192.0.2.1"));
    assert!(said.starts_with("refused ENETUNREACH"), "{said}");
}

fn no_view_of_the_host(language: Language) {
    let world = World::new(language);
    let look = "return say([fs.readdirSync('/'), require('os').hostname(), process.env, process.argv.length, process.execArgv])";
    let said = says(&world, &apply(look));
    for word in ["\"home\"", "\"root\"", "\"var\"", "\"sys\"", "sinew", "LD_PRELOAD", "NODE_PATH"] {
        assert!(!said.contains(word), "{word} is seen: {said}");
    }
    assert!(said.contains("\"sandbox\"") && said.ends_with("1,[]]"), "{said}");
    drop(world);
    let weak = World::with(options(language), Weakness::OLD_ROOT);
    let seen = says(&weak, &apply("return say(fs.readdirSync('/old'))"));
    control(seen.contains("\"var\""), seen);
}

fn nothing_of_the_one_before(language: Language) {
    let world = World::new(language);
    let leave = "fs.writeFileSync('/tmp/left', 'x'); globalThis.left = 1; Object.prototype.left = 1; require('path').left = 1; return say('ok')";
    assert_eq!(says(&world, &apply(leave)), "ok");
    let find = "return say([fs.existsSync('/tmp/left'), 'left' in globalThis, 'left' in {}, 'left' in require('path')])";
    assert_eq!(says(&world, &apply(find)), "[false,false,false,false]");
    // The next call of the same instance finds all of it.
    let both = apply(&format!("if (String(x) === 'leave') {{ {leave}; }} {find}"));
    let id = world.created(&both);
    assert_eq!(world.invoke(id, &both, b"leave").unwrap(), b"ok");
    let found = String::from_utf8(world.invoke(id, &both, b"find").unwrap()).unwrap();
    control(found == "[true,true,true,true]", found);
    world.end(id);
}

fn signals_reach_nobody_else(language: Language) {
    let world = World::new(language);
    let pid = world.functions.template_pid().unwrap();
    for target in ["0", "-1"] {
        // It may hit itself.
        _ = world.run(&apply(&format!("process.kill({target}, 9); return say('')")));
        assert_eq!(world.functions.template_pid().unwrap(), pid, "the template was hit");
        world.assert_others_are_served();
    }
    let signal = attempt(&format!("process.kill({pid}, 0)"));
    let said = says(&world, &signal);
    assert!(said.starts_with("refused ESRCH"), "{said}");
    // Among the host's processes the same number is somebody, who belongs to
    // another user; and so may root signal him.
    let said = says(&World::with(options(language), Weakness::HOST_PROCESSES), &signal);
    assert!(said.starts_with("refused EPERM"), "{said}");
    let weak = Weakness::HOST_PROCESSES.and(Weakness::ROOT).and(Weakness::NO_LANDLOCK);
    let weak = World::with(options(language), weak);
    let signal = attempt(&format!("process.kill({}, 0)", weak.functions.template_pid().unwrap()));
    let said = says(&weak, &signal);
    control(said == "done", said);
}

fn lies_on_the_channel(language: Language) {
    let world = World::new(language);
    for words in [
        "require('crypto').randomBytes(100)",
        "'\\xff\\xff\\xff\\xff\\x05\\x01\\0\\0\\0', 'latin1'",
        "'\\0\\0\\0\\0\\x09\\0\\0\\0\\0', 'latin1'",
        "'\\x0a\\0\\0\\0\\x01\\0\\0\\0\\0SNWP\\x05\\0\\0\\0\\0\\0', 'latin1'",
        // More of a body that does not come.
        "'\\x04\\0\\0\\0\\x11\\x01\\0\\0\\0\\x01\\0\\0\\0', 'latin1'",
        // An answer to a call that there is not.
        "'\\x02\\0\\0\\0\\x05\\x07\\0\\0\\0hi', 'latin1'",
    ] {
        let lines = format!("fs.writeSync(3, Buffer.from({words})); await new Promise(() => {{}})");
        let fault = world.run(&apply(&lines)).unwrap_err();
        // Random bytes may also promise a frame that does not come.
        assert!(matches!(fault.code, FailureCode::Trap | FailureCode::Deadline), "{words}: {fault}");
        world.assert_others_are_served();
    }
    fails(&world, "fs.closeSync(3); await new Promise(() => {})", FailureCode::Trap);
    // The controls: another descriptor is the function's to close, and words
    // that the protocol allows are heard.
    assert_eq!(
        says(&world, &apply("fs.closeSync(fs.openSync('/dev/null')); return say('served')")),
        "served"
    );
    // A forged result is the function's own result.
    let forged = apply(
        "fs.writeSync(3, Buffer.from('\\x02\\0\\0\\0\\x05\\x01\\0\\0\\0hi')); await new Promise(() => {})",
    );
    let said = says(&world, &forged);
    look_alike(said == "hi", said);
}

fn a_child_holds_the_channel(language: Language) {
    let world = World::new(language);
    let lines = "require('child_process').spawn('/bin/sleep', ['1000'], { stdio: ['ignore', 'ignore', 'ignore', 3] });\nprocess.exit(0)";
    fails(&world, lines, FailureCode::Trap);
    // The control: it is the process's end that is noticed, not the child.
    let stays = lines.replace("process.exit(0)", "return say('served')");
    let said = says(&world, &apply(&stays));
    look_alike(said == "served", said);
}

fn huge_results(language: Language) {
    let options = FunctionsOptions { result_bytes_max: 1 << 20, ..options(language) };
    let world = World::with(options, Weakness::NONE);
    let fault = fails(&world, "return Buffer.alloc((1 << 20) + 1)", FailureCode::BadResult);
    assert!(fault.detail.contains("1048577"), "{fault}");
    assert_eq!(says(&world, &apply("return Buffer.alloc(1 << 20)")).len(), 1 << 20);
    // The control: where more is allowed, more comes.
    let wide = World::with(
        FunctionsOptions { result_bytes_max: 2 << 20, ..crate::world::options(language) },
        Weakness::NONE,
    );
    let more = says(&wide, &apply("return Buffer.alloc((1 << 20) + 1)")).len();
    control(more == (1 << 20) + 1, more);
}

fn ending_itself(language: Language) {
    let world = World::new(language);
    for (lines, text) in [
        ("process.reallyExit(7)", "status 7"),
        ("process.exitCode = 5; process.exit()", "status 5"),
        ("process.abort()", "SIGABRT"),
        ("process.kill(process.pid, 'SIGTERM'); await new Promise(() => {})", "SIGTERM"),
        ("process.kill(process.pid, 'SIGUSR1'); await new Promise(() => {})", "signal 10"),
    ] {
        let fault = fails(&world, lines, FailureCode::Trap);
        assert!(fault.detail.contains(text), "{lines}: {fault}");
    }
    // The control: a signal that is handled ends nothing.
    let handled = "process.once('SIGTERM', () => {}); process.kill(process.pid, 'SIGTERM'); await new Promise((done) => setTimeout(done, 50)); return say('alive')";
    let said = says(&world, &apply(handled));
    look_alike(said == "alive", said);
    // What Node does at its end must not wait for what is not there.
    fails(
        &world,
        "process.on('uncaughtException', () => { throw new Error('again'); }); setTimeout(() => { throw new Error('first'); }); await new Promise(() => {})",
        FailureCode::Trap,
    );
}

fn descriptors_are_closed(language: Language) {
    let world = World::new(language);
    let look = "return say(fs.readdirSync('/proc/self/fd').map((n) => { try { return fs.readlinkSync(`/proc/self/fd/${n}`); } catch { return ''; } }).filter((to) => to !== ''))";
    let said = says(&world, &apply(look));
    let found: Vec<&str> = said.trim_matches(['[', ']']).split(',').collect();
    // Its streams, its channel, the event loop, and the listing itself.
    for to in &found {
        let kinds = ["\"/dev/null\"", "\"socket:", "\"anon_inode:[event", "\"pipe:", "\"/proc"];
        assert!(kinds.iter().any(|kind| to.starts_with(kind)), "{to}: {said}");
    }
    assert_eq!(found.iter().filter(|to| to.starts_with("\"socket:")).count(), 1, "{said}");
    assert!(found.len() <= 13, "{said}");
    // The control: what is open is seen.
    let open = apply(&format!("fs.openSync('/usr/bin/env', 'r');\nfs.openSync('/tmp', 'r');\n{look}"));
    let seen = says(&world, &open);
    look_alike(seen.contains("/usr/bin/env") && seen.contains("\"/tmp\""), seen);
}

fn loading_that_never_ends(language: Language) {
    let options = FunctionsOptions { load_timeout: Duration::from_secs(1), ..options(language) };
    let world = World::with(options, Weakness::NONE);
    let began = Instant::now();
    let slow = "for (const until = Date.now() + 3000; Date.now() < until; );\nexports.apply = () => Buffer.from('loaded');\n";
    for endless in ["for (;;);", slow] {
        let created = world.functions.create(&[world.spec(endless)]).pop().unwrap();
        assert!(created.unwrap_err().to_string().contains("took too long"));
    }
    assert!(began.elapsed() < Duration::from_secs(20));
    world.assert_others_are_served();
    drop(world);
    // The control: where it may take longer, it holds its place as long as it likes.
    let said = says(&World::new(language), slow);
    control(said == "loaded", said);
}

fn read_numbers(text: &str) -> Vec<u32> {
    text.trim_matches(['[', ']']).split(',').map(|number| number.trim().parse().unwrap()).collect()
}
