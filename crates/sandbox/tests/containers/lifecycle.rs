// SPDX-License-Identifier: Apache-2.0
//! Making, using and taking away containers.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use sandbox::process::{Bind, Bounds, Error, Exit, Pool, Program, Rootfs, Runtime, RuntimeOptions, Weakness};

use crate::world::{CGROUP_NAME, World, attacker, finish, runtime, shell, start};
use crate::{Case, Needs};

pub(crate) const CASES: &[Case] = &[
    Case { name: "lifecycle::programs_run", needs: Needs::Nothing, run: programs_run },
    Case { name: "lifecycle::world_inside", needs: Needs::Nothing, run: world_inside },
    Case { name: "lifecycle::missing_program", needs: Needs::Nothing, run: missing_program },
    Case { name: "lifecycle::failed_preparation", needs: Needs::Nothing, run: failed_preparation },
    Case { name: "lifecycle::nobody_told_of", needs: Needs::Nothing, run: nobody_told_of },
    Case { name: "lifecycle::usage_is_counted", needs: Needs::MemoryLimit, run: usage_is_counted },
    Case { name: "lifecycle::dead_container", needs: Needs::Nothing, run: dead_container },
    Case { name: "lifecycle::dropped_while_running", needs: Needs::Nothing, run: dropped_while_running },
    Case { name: "lifecycle::no_descriptors_inside", needs: Needs::Nothing, run: no_descriptors_inside },
    Case { name: "lifecycle::python_runs", needs: Needs::Nothing, run: python_runs },
    Case { name: "lifecycle::loopback", needs: Needs::Nothing, run: loopback },
    Case { name: "lifecycle::pool", needs: Needs::Nothing, run: pool },
    Case { name: "lifecycle::usual_priority", needs: Needs::Root, run: usual_priority },
    Case { name: "lifecycle::layers_are_attached", needs: Needs::Root, run: layers_are_attached },
    Case { name: "lifecycle::death_of_the_node", needs: Needs::Root, run: death_of_the_node },
    Case { name: "lifecycle::cost", needs: Needs::Nothing, run: cost },
];

fn programs_run(world: &World) {
    let container = world.container(Weakness::NONE);
    let ran = finish(start(&container, &shell("echo out; echo err >&2; exit 3")));
    assert_eq!((ran.exit, ran.text.as_str()), (Some(Exit::Code(3)), "out\nerr\n"));
    let ran = finish(start(&container, &shell("kill -9 $$")));
    assert_eq!(ran.exit, Some(Exit::Signal(9)));
    let mut both = [start(&container, &shell("sleep 0.1; echo a")), start(&container, &shell("echo b"))];
    both.reverse();
    let texts = both.map(|one| finish(one).text);
    assert_eq!(texts, ["b\n", "a\n"]);
    container.destroy().unwrap();
}

/// Connections to a container's loopback, which nobody outside has.
fn loopback(world: &World) {
    const PORT: u16 = 3129;
    let [container, other] = [Weakness::NONE; 2].map(|weakness| world.container(weakness));
    let listener = container.listen(PORT).unwrap();
    let mut inside = container.connect(PORT).unwrap();
    let (mut accepted, _) = listener.accept().unwrap();
    inside.write_all(b"in\n").unwrap();
    let mut line = String::new();
    BufReader::new(&mut accepted).read_line(&mut line).unwrap();
    assert_eq!(line, "in\n");
    let refused = |error: &Error| matches!(error, Error::Program(why) if why.contains("refused"));
    assert!(other.connect(PORT).is_err_and(|error| refused(&error)));
    assert!(std::net::TcpStream::connect(("127.0.0.1", PORT)).is_err());
    drop(listener);
    assert!(container.connect(PORT).is_err_and(|error| refused(&error)));
    container.destroy().unwrap();
    other.destroy().unwrap();
}

/// What a program sees of itself says that each layer holds.
fn world_inside(world: &World) {
    let container = world.container(Weakness::NONE);
    let said = |script: &str| {
        let ran = finish(start(&container, &shell(script)));
        assert_eq!(ran.exit, Some(Exit::Code(0)), "{script}: {ran:?}");
        ran.text
    };
    let status = said("cat /proc/self/status");
    let line = |name: &str| {
        let found = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(":\t"));
        found.unwrap().to_owned()
    };
    for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        assert_eq!(line(set), "0000000000000000", "{set}");
    }
    assert_eq!((line("NoNewPrivs").as_str(), line("Seccomp").as_str()), ("1", "2"));
    let user = container.confinement().user.to_string();
    assert_eq!(line("Uid"), [user.as_str(); 4].join("\t"));
    assert_eq!(line("Gid"), [user.as_str(); 4].join("\t"));
    assert_eq!(said("hostname || uname -n"), "sandbox\n");
    assert_eq!(said("ls /dev | tr '\\n' ' '"), "fd full null random shm stderr stdin stdout urandom zero ");
    assert_eq!(said("ls -A /tmp"), "");
    let mounts = said("cat /proc/self/mountinfo");
    let fields = |place: &str| {
        let found = mounts.lines().find(|line| line.split(' ').nth(4) == Some(place));
        found.unwrap().split(' ').nth(5).unwrap().to_owned()
    };
    assert!(fields("/").starts_with("ro,nosuid,nodev"), "{}", fields("/"));
    assert!(fields("/usr").starts_with("ro,nosuid,nodev"), "{}", fields("/usr"));
    assert!(fields("/proc").starts_with("ro,nosuid,nodev,noexec"), "{}", fields("/proc"));
    assert!(fields("/tmp").starts_with("rw,nosuid,nodev"), "{}", fields("/tmp"));
    container.destroy().unwrap();
}

/// Whoever prepares containers in advance gives way to others; what will run
/// in them does not.
fn usual_priority(world: &World) {
    let runtime = runtime(Weakness::NONE).unwrap();
    let (niceness, lowered, said) = std::thread::scope(|scope| {
        let before = linux::niceness().unwrap();
        let prepared = scope.spawn(|| {
            linux::lower_priority(5).unwrap();
            let container = runtime.prepare(&world.rootfs, &Bounds::default()).unwrap();
            let ran = finish(start(&container, &shell("nice")));
            container.destroy().unwrap();
            (linux::niceness().unwrap(), ran.text)
        });
        let (lowered, said) = prepared.join().unwrap();
        (before, lowered, said)
    });
    assert_ne!(lowered, niceness, "the control: it was lowered");
    assert_eq!(said, format!("{niceness}\n"));
}

fn missing_program(world: &World) {
    let container = world.container(Weakness::NONE);
    let (mut process, _reader) = start(&container, &Program::new("/nowhere"));
    let failed = process.wait(Duration::from_secs(5));
    assert!(matches!(&failed, Err(Error::Program(why)) if why.contains("No such file")), "{failed:?}");
    let null = || std::fs::File::open("/dev/null").unwrap().into();
    let relative = container.run(&Program::new("sh"), [null(), null(), null()]);
    assert!(matches!(relative, Err(Error::Invalid(_))), "{relative:?}");
    container.destroy().unwrap();
}

fn failed_preparation(world: &World) {
    let runtime = runtime(Weakness::NONE).unwrap();
    let mut rootfs = world.rootfs.clone();
    rootfs.read_only.push(Bind::same("/nowhere"));
    let failed = runtime.prepare(&rootfs, &Bounds::default());
    assert!(matches!(&failed, Err(Error::Prepare(why)) if why.contains("/nowhere")), "{failed:?}");
    let wrong = Rootfs {
        read_only: vec![Bind { host: "/usr".into(), guest: "/a/../b".into() }],
        ..Rootfs::default()
    };
    assert!(matches!(runtime.prepare(&wrong, &Bounds::default()), Err(Error::Invalid(_))));
}

/// An init that dies before anybody has heard of the process that it has forked.
pub(crate) fn forget() -> ExitCode {
    linux::receive_message(std::io::stdin()).unwrap().unwrap();
    if matches!(linux::fork(true).unwrap(), linux::Forked::Child) {
        std::thread::sleep(Duration::from_millis(200));
    }
    ExitCode::FAILURE
}

/// It is a child of whoever makes containers, and would stay when it has ended.
fn nobody_told_of(world: &World) {
    let this = std::env::current_exe().unwrap();
    let init = vec![this.into(), "forgetful-init".into()];
    let options = RuntimeOptions { cgroup_name: CGROUP_NAME.to_owned(), init, ..RuntimeOptions::default() };
    let runtime = Runtime::new(options).unwrap();
    let failed = runtime.prepare(&world.rootfs, &Bounds::default());
    assert!(matches!(&failed, Err(Error::Prepare(why)) if why == "the init ended"), "{failed:?}");
}

fn usage_is_counted(world: &World) {
    let container = world.container(Weakness::NONE);
    assert_eq!(container.usage().unwrap().processes, 0, "pid 1 does not count");
    let script = "i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; head -c 3000000 /dev/zero > /tmp/x";
    let ran = finish(start(&container, &shell(script)));
    assert_eq!(ran.exit, Some(Exit::Code(0)), "{ran:?}");
    let usage = container.usage().unwrap();
    assert!(usage.cpu_ns > 1_000_000 && usage.memory_bytes > 3_000_000, "{usage:?}");
    assert!(usage.memory_peak_bytes >= usage.memory_bytes && usage.oom_kills == 0, "{usage:?}");
    container.destroy().unwrap();
}

fn dead_container(world: &World) {
    let container = world.container(Weakness::NONE);
    container.kill();
    std::thread::sleep(Duration::from_millis(100));
    let null = || std::fs::File::open("/dev/null").unwrap().into();
    let refused = container.run(&shell("true"), [null(), null(), null()]);
    assert!(matches!(refused, Err(Error::Ended)), "{refused:?}");
    container.destroy().unwrap();
}

fn dropped_while_running(world: &World) {
    let container = world.container(Weakness::NONE);
    let (mut process, _reader) = start(&container, &shell("sleep 1000"));
    drop(container);
    assert_eq!(process.wait(Duration::ZERO).unwrap(), Some(Exit::Signal(9)));
}

fn no_descriptors_inside(world: &World) {
    let container = world.container(Weakness::NONE);
    // The shell's own, and the one with which it reads the folder.
    let ran = finish(start(&container, &shell("ls /proc/self/fd | tr '\\n' ' '")));
    assert_eq!(ran.text, "0 1 2 3 ");
    container.destroy().unwrap();
}

/// What ordinary Python programs do, the filter lets them do.
const PYTHON: &str = r#"
import asyncio, concurrent.futures, ctypes, hashlib, json, mmap, multiprocessing, os, socket, sqlite3
import subprocess, tempfile, threading, time
assert list(concurrent.futures.ThreadPoolExecutor(4).map(lambda n: n * n, range(9)))[8] == 64
assert subprocess.run(["/bin/echo", "a"], capture_output=True).stdout == b"a\n"
with multiprocessing.get_context("fork").Pool(2) as pool: assert pool.map(abs, [-1, -2]) == [1, 2]
with tempfile.NamedTemporaryFile() as file: file.write(b"x" * 5000); file.flush(); mmap.mmap(file.fileno(), 0)
a, b = socket.socketpair(); a.send(b"x"); assert b.recv(1) == b"x"
asyncio.run(asyncio.sleep(0.01)); sqlite3.connect("/tmp/db").execute("create table t (a)")
assert len(os.urandom(8)) == 8 and os.cpu_count() and os.getpid() > 1
try: import numpy; assert (numpy.ones((200, 200)) @ numpy.ones((200, 200)))[0, 0] == 200
except ModuleNotFoundError: pass
print("done")
"#;

fn python_runs(world: &World) {
    let ask = "import sys; print(sys.base_prefix); print(sys.executable)";
    let Ok(told) = Command::new("python3").args(["-c", ask]).output() else { return };
    let told = String::from_utf8(told.stdout).unwrap();
    // No Python here: nothing to be shown.
    let Some((prefix, executable)) = told.trim().split_once('\n') else { return };
    let mut with = world.again();
    if !prefix.starts_with("/usr") {
        with.rootfs.read_only.push(Bind::same(prefix));
    }
    let container = with.container(Weakness::NONE);
    let mut program = Program::new(executable);
    program.arguments = vec!["-c".into(), PYTHON.into()];
    let ran = finish(start(&container, &program));
    // The folder above may be closed to others than root, and with it Python.
    let is_closed = !world.is_root() && !std::path::Path::new(executable).exists();
    assert!(ran.text == "done\n" || is_closed, "{ran:?}");
    container.destroy().unwrap();
}

fn pool(world: &World) {
    let pool = Pool::new(runtime(Weakness::NONE).unwrap(), world.rootfs.clone(), Bounds::default(), 2);
    assert_eq!([pool.fill().unwrap(), pool.fill().unwrap(), pool.fill().unwrap()], [true, true, false]);
    let taken = pool.take().unwrap();
    assert_eq!(pool.ready(), 1);
    assert_eq!(finish(start(&taken, &attacker(&["hello"]))).text, "done\n");
    assert!(pool.fill().unwrap());
    let more = [pool.take().unwrap(), pool.take().unwrap(), pool.take().unwrap()];
    assert_eq!(pool.ready(), 0, "the third was made when it was asked for");
    drop(more);
    taken.destroy().unwrap();
    pool.fill().unwrap();
    pool.drain();
}

/// A node that prepares a container and then does nothing.
pub(crate) fn hold() -> ExitCode {
    let world = World::new().unwrap();
    let container = world.container(Weakness::NONE);
    let (_process, reader) = start(&container, &shell("echo started; sleep 1000"));
    BufReader::new(&reader).read_line(&mut String::new()).unwrap();
    println!("{}", container.confinement().user);
    std::io::stdout().flush().unwrap();
    std::thread::sleep(Duration::from_secs(60));
    ExitCode::FAILURE
}

fn death_of_the_node(_world: &World) {
    let this = std::env::current_exe().unwrap();
    let mut node = Command::new(this).arg("hold").stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(node.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let user: u32 = line.trim().parse().unwrap();
    let lived = lives(user);
    node.kill().unwrap();
    node.wait().unwrap();
    assert!(lived, "its container lives");
    let began = Instant::now();
    while lives(user) {
        assert!(began.elapsed() < Duration::from_secs(5), "the container outlives its node");
        std::thread::sleep(Duration::from_millis(10));
    }
    // The next node takes away what this one could not.
    runtime(Weakness::NONE).unwrap();
    let mut left = std::collections::BTreeSet::new();
    crate::host::groups_of(node.id(), &mut left);
    assert!(left.is_empty(), "{left:?}");
}

fn lives(user: u32) -> bool {
    use std::os::unix::fs::MetadataExt as _;
    let mut processes = std::fs::read_dir("/proc").unwrap().flatten();
    processes.any(|entry| entry.metadata().is_ok_and(|metadata| metadata.uid() == user))
}

/// What preparing and destroying take; printed, and only grossly bounded.
fn cost(world: &World) {
    let runtime = runtime(Weakness::NONE).unwrap();
    let (mut prepare, mut run, mut destroy) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..30 {
        let began = Instant::now();
        let container = runtime.prepare(&world.rootfs, &Bounds::default()).unwrap();
        prepare.push(began.elapsed());
        let began = Instant::now();
        finish(start(&container, &Program::new("/bin/true")));
        run.push(began.elapsed());
        let began = Instant::now();
        container.destroy().unwrap();
        destroy.push(began.elapsed());
    }
    for (name, times) in [("prepare", &mut prepare), ("run /bin/true", &mut run), ("destroy", &mut destroy)] {
        times.sort_unstable();
        println!(
            "    {name}: n {}, min {:?}, median {:?}, max {:?}",
            times.len(),
            times[0],
            times[15],
            times[29]
        );
        assert!(times[15] < Duration::from_secs(1), "{name} takes {:?}", times[15]);
    }
}

/// Folders come into a container after it was made, cannot be written there,
/// and leave no mount outside.
fn layers_are_attached(world: &World) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("code"), b"here").unwrap();
    std::fs::set_permissions(folder.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let rootfs = Rootfs { places: vec!["/app".into(), "/layers/0".into()], ..world.rootfs.clone() };
    let runtime = runtime(Weakness::NONE).unwrap();
    let container = runtime.prepare(&rootfs, &Bounds::default()).unwrap();
    let bind = |guest: &str| Bind { host: folder.path().to_owned(), guest: guest.into() };
    container.attach(&[bind("/app"), bind("/layers/0")]).unwrap();
    assert!(matches!(container.attach(&[bind("/nowhere")]), Err(Error::Kernel { .. })));
    let script = "cat /app/code /layers/0/code; for i in /app/x /layers/0/x /app/code; do echo a 2>/dev/null > $i && echo written; done; \
        mount --bind /tmp /app 2>/dev/null && echo mounted; umount /app 2>/dev/null && echo taken; \
        grep -c ' /app ro,nosuid,nodev' /proc/self/mountinfo";
    let ran = finish(start(&container, &shell(script)));
    assert_eq!(ran.text, "herehere1\n");
    container.destroy().unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}
