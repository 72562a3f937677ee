// SPDX-License-Identifier: Apache-2.0
//! What functions that mean well rely on.

use std::time::{Duration, Instant};

use objects::{FailureCode, Handle};
use sandbox::contract::{self, Fixture};
use sandbox::process::{PythonOptions, Weakness};
use sandbox::{Call, Sandbox, Spec};

use crate::Case;
use crate::world::{World, apply, options};

pub(crate) const CASES: &[Case] = &[
    ("contract", contract),
    ("contract_with_blanks", contract_with_blanks),
    ("many_at_once", many_at_once),
    ("randomness_differs", randomness_differs),
    ("threads_and_programs", threads_and_programs),
    ("standard_library", standard_library),
    ("kill_then_delete_leaves_nothing", kill_then_delete_leaves_nothing),
    ("instances_outlive_the_template", instances_outlive_the_template),
    ("a_stuck_template_is_replaced", a_stuck_template_is_replaced),
    ("a_stuck_template_keeps_no_container", a_stuck_template_keeps_no_container),
];

const ECHO: &str = "def apply(x):\n    return x\n";
const RAISING: &str = "def apply(*x):\n    raise ValueError('no good')\n";
const ENDLESS: &str = "def apply(*x):\n    while True: pass\n";

impl Fixture for World {
    fn sandbox(&self) -> &dyn Sandbox {
        &self.python
    }

    fn good(&self) -> Spec {
        self.spec(ECHO)
    }

    fn bad(&self) -> Spec {
        self.spec("def apply(:")
    }

    fn echo(&self, argument: Handle) -> (Call, Handle) {
        (self.call(ECHO, &[argument]), argument)
    }

    fn failing(&self) -> (Spec, Call, FailureCode) {
        (self.spec(RAISING), self.call(RAISING, &[]), FailureCode::Trap)
    }

    fn endless(&self) -> (Spec, Call) {
        (self.spec(ENDLESS), self.call(ENDLESS, &[]))
    }
}

fn contract() {
    contract::check_all(&World::new());
}

fn contract_with_blanks() {
    let world = World::with(PythonOptions { blanks: 2, ..options() }, Weakness::NONE);
    let began = Instant::now();
    while world.python.blanks() < 2 && began.elapsed() < Duration::from_secs(10) {
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(world.python.blanks(), 2);
    contract::check_all(&world);
}

fn many_at_once() {
    let world = World::new();
    let specs = vec![world.spec(ECHO); 12];
    let ids: Vec<_> = world.python.create(&specs).into_iter().map(Result::unwrap).collect();
    assert!(world.python.start(&ids).iter().all(Result::is_ok));
    std::thread::scope(|scope| {
        for id in &ids {
            scope.spawn(|| assert_eq!(world.invoke(*id, ECHO, b"x").unwrap(), b"x"));
        }
    });
    ids.into_iter().for_each(|id| world.end(id));
}

fn randomness_differs() {
    let world = World::new();
    let draw = "import random, uuid, tempfile\nreturn repr((random.random(), uuid.uuid4(), next(tempfile._get_candidate_names()))).encode()";
    let drawn: std::collections::BTreeSet<_> = (0..4).map(|_| world.says(draw)).collect();
    assert_eq!(drawn.len(), 4, "{drawn:?}");
    // The negative control: what is not random is the same everywhere.
    assert_eq!(world.says("return str(hash('x')).encode()"), world.says("return str(hash('x')).encode()"));
}

fn threads_and_programs() {
    let world = World::new();
    let threads = "import concurrent.futures as f\nwith f.ThreadPoolExecutor(4) as pool: return str(sum(pool.map(abs, range(-9, 0)))).encode()";
    assert_eq!(world.says(threads), "45");
    let program = "import subprocess\nreturn subprocess.run(['/bin/echo', 'hello'], capture_output=True, check=True).stdout";
    assert_eq!(world.says(program), "hello\n");
    let fork = "r, w = os.pipe()\nif os.fork() == 0:\n    os.write(w, b'child')\n    os._exit(0)\nos.wait()\nreturn os.read(r, 9)";
    assert_eq!(world.says(fork), "child");
}

fn standard_library() {
    let world = World::new();
    let source = "import json, re, datetime, decimal, hashlib, zlib, csv, io, sqlite3, tempfile, socket, threading, asyncio, pathlib\n\
        async def f(): return 4\n\
        with tempfile.NamedTemporaryFile() as t: t.write(b'x'); t.flush(); size = os.path.getsize(t.name)\n\
        db = sqlite3.connect(':memory:'); n = db.execute('select 2').fetchone()[0]\n\
        return json.dumps([size, n, asyncio.run(f()), hashlib.sha256(b'').hexdigest()[:4]]).encode()";
    assert_eq!(world.says(source), "[1, 2, 4, \"e3b0\"]");
}

fn kill_then_delete_leaves_nothing() {
    let world = World::new();
    let source =
        apply("import subprocess\nfor i in range(5): subprocess.Popen(['/bin/sleep', '1000'])\nreturn b''");
    let id = world.created(&source);
    assert_eq!(world.invoke(id, &source, b"").unwrap(), b"");
    world.end(id);
}

fn instances_outlive_the_template() {
    let world = World::new();
    let id = world.created(ECHO);
    let pid = world.python.template_pid().unwrap().to_string();
    std::process::Command::new("kill").args(["-9", &pid]).status().unwrap();
    assert_eq!(world.invoke(id, ECHO, b"alive").unwrap(), b"alive");
    world.assert_others_are_served();
    world.end(id);
}

fn stop_the_template(world: &World) {
    let pid = world.python.template_pid().unwrap().to_string();
    std::process::Command::new("kill").args(["-STOP", &pid]).status().unwrap();
}

fn a_stuck_template_is_replaced() {
    let world = World::new();
    stop_the_template(&world);
    let began = Instant::now();
    let refused = world.python.create(&[world.spec(ECHO)]).pop().unwrap().unwrap_err();
    assert!(refused.to_string().contains("did not answer in time"), "{refused}");
    assert!(began.elapsed() < Duration::from_secs(15));
    world.assert_others_are_served();
}

fn a_stuck_template_keeps_no_container() {
    let world = World::new();
    let id = world.created(ECHO);
    stop_the_template(&world);
    let began = Instant::now();
    world.end(id);
    assert!(began.elapsed() < Duration::from_secs(15));
    world.assert_others_are_served();
}
