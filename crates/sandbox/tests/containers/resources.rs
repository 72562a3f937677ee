// SPDX-License-Identifier: Apache-2.0
//! What hostile code can use up, and ending what does not want to end.

use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::PermissionsExt as _;
use std::time::{Duration, Instant};

use sandbox::process::{Bind, Bounds, Exit, Program, Weakness};

use crate::control::{control, no_control};
use crate::host::Host;
use crate::world::{World, attacker, finish, shell, start};
use crate::{Case, Needs};

pub(crate) const CASES: &[Case] = &[
    Case { name: "resources::fork_bomb", needs: Needs::MemoryLimit, run: fork_bomb },
    Case { name: "resources::memory_bomb", needs: Needs::MemoryLimit, run: memory_bomb },
    Case { name: "resources::tmp_bytes", needs: Needs::Nothing, run: tmp_bytes },
    Case { name: "resources::tmp_inodes", needs: Needs::Nothing, run: tmp_inodes },
    Case { name: "resources::open_files", needs: Needs::Nothing, run: open_files },
    Case { name: "resources::core_dump", needs: Needs::Nothing, run: core_dump },
    Case { name: "resources::output_flood", needs: Needs::Nothing, run: output_flood },
    Case { name: "resources::endless_loop", needs: Needs::MemoryLimit, run: endless_loop },
    Case { name: "resources::disk", needs: Needs::DiskLimit, run: disk },
    Case { name: "resources::page_cache", needs: Needs::DiskLimit, run: page_cache },
    Case { name: "resources::blocked_signals", needs: Needs::Nothing, run: blocked_signals },
    Case { name: "resources::daemon", needs: Needs::Root, run: daemon },
    Case { name: "resources::throttled_crowd_is_killed", needs: Needs::MemoryLimit, run: throttled_crowd },
];

fn fork_bomb(world: &World) {
    let layers = [Weakness::NO_GROUP, Weakness::NO_LIMITS];
    world.assert_stopped(&["fork-bomb"], &layers, Weakness::NONE);
    let container = world.container(Weakness::NONE);
    let ran = finish(start(&container, &attacker(&["fork-bomb"])));
    assert!(ran.text.starts_with("refused 11 "), "{ran:?}");
    assert!(container.usage().unwrap().processes > 50, "the bomb went off");
    world.assert_others_are_served();
    container.destroy().unwrap();
}

fn memory_bomb(world: &World) {
    let bounds = Bounds { memory_bytes: 64 << 20, ..Bounds::default() };
    let container = world.bounded(Weakness::NONE, &bounds);
    let ran = finish(start(&container, &attacker(&["memory-bomb"])));
    assert_eq!(ran.exit, Some(Exit::Signal(9)), "{ran:?}");
    let usage = container.usage().unwrap();
    assert!(usage.oom_kills >= 1 && usage.memory_peak_bytes <= 64 << 20, "{usage:?}");
    world.assert_others_are_served();
    container.destroy().unwrap();
    let container = world.bounded(Weakness::NO_GROUP, &bounds);
    let ran = finish(start(&container, &attacker(&["memory-bomb"])));
    control((ran.exit, ran.text.as_str()) == (Some(Exit::Code(0)), "done\n"), format!("{ran:?}"));
    container.destroy().unwrap();
}

fn tmp_bytes(world: &World) {
    world.assert_stopped(&["fill-bytes"], &[Weakness::NO_QUOTA], Weakness::NONE);
}

fn tmp_inodes(world: &World) {
    world.assert_stopped(&["fill-inodes"], &[Weakness::NO_QUOTA], Weakness::NONE);
}

fn open_files(world: &World) {
    world.assert_stopped(&["exhaust-files"], &[Weakness::NO_LIMITS], Weakness::NONE);
}

fn core_dump(world: &World) {
    world.assert_stopped(&["core"], &[Weakness::NO_LIMITS], Weakness::NONE);
}

/// Who does not read on holds the writer up, and loses nothing.
fn output_flood(world: &World) {
    let container = world.container(Weakness::NONE);
    let (mut process, mut reader) = start(&container, &attacker(&["flood"]));
    let mut taken = vec![0; 1 << 20];
    reader.read_exact(&mut taken).unwrap();
    assert_eq!(process.wait(Duration::from_millis(100)).unwrap(), None, "it goes on as long as it is read");
    world.assert_others_are_served();
    let began = Instant::now();
    container.destroy().unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(process.wait(Duration::ZERO).unwrap(), Some(Exit::Signal(9)));
    assert_outlives(world, &attacker(&["flood"]));
}

fn endless_loop(world: &World) {
    let bounds = Bounds { cpu_percent: 20, ..Bounds::default() };
    let container = world.bounded(Weakness::NONE, &bounds);
    let (mut process, _reader) = start(&container, &attacker(&["spin"]));
    let before = container.usage().unwrap().cpu_ns;
    let began = Instant::now();
    assert_eq!(process.wait(Duration::from_millis(1000)).unwrap(), None, "it never ends by itself");
    let used = container.usage().unwrap().cpu_ns - before;
    let percent = used as f64 / began.elapsed().as_nanos() as f64 * 100.0;
    assert!(percent < 40.0, "it may use 20 % of a processor, and used {percent} %");
    let began = Instant::now();
    container.kill();
    container.kill();
    assert_eq!(process.wait(Duration::from_secs(2)).unwrap(), Some(Exit::Signal(9)));
    container.destroy().unwrap();
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    // Where it may, it uses more than that of the same time.
    let container = world.bounded(Weakness::NONE, &Bounds { cpu_percent: 100, ..Bounds::default() });
    let (mut process, _reader) = start(&container, &attacker(&["spin"]));
    let before = container.usage().unwrap().cpu_ns;
    while container.usage().unwrap().cpu_ns - before <= used {
        assert_eq!(process.wait(Duration::from_millis(5)).unwrap(), None);
    }
    control(true, "it used more");
    container.destroy().unwrap();
}

/// Reads what is on a disk and not in memory.
fn disk(world: &World) {
    let bounds = Bounds { disk_bytes_per_s: Some(1 << 20), ..Bounds::default() };
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut world = world.again();
    world.rootfs.read_only.push(Bind { host: folder.path().to_owned(), guest: "/own".into() });
    let read = |name: &str, bounds: &Bounds| {
        let file = std::fs::File::create(folder.path().join(name)).unwrap();
        (&file).write_all(&vec![b'x'; 4 << 20]).unwrap();
        file.sync_all().unwrap();
        // SAFETY: the call takes a descriptor and numbers; 4 is POSIX_FADV_DONTNEED.
        assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, 4) }, 0);
        let container = world.bounded(Weakness::NONE, bounds);
        // The program itself is read before.
        assert_eq!(finish(start(&container, &attacker(&["hello"]))).text, "done\n");
        let began = Instant::now();
        let ran = finish(start(&container, &attacker(&["read-all", &format!("/own/{name}")])));
        assert_eq!(ran.text, "done\n", "{ran:?}");
        let took = began.elapsed();
        container.destroy().unwrap();
        took
    };
    let slow = read("slow", &bounds);
    assert!(slow > Duration::from_secs(2), "4 MiB at 1 MiB/s took {slow:?}");
    world.assert_others_are_served();
    let free = read("free", &Bounds::default());
    control(free < slow, format!("{free:?}, {slow:?}"));
}

/// What is read of files stays in memory as long as there is room, which is the container's.
fn page_cache(world: &World) {
    let bounds = Bounds { memory_bytes: 32 << 20, ..Bounds::default() };
    let folder = tempfile::tempdir_in("/var/tmp").unwrap();
    std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let mut world = world.again();
    world.rootfs.read_only.push(Bind { host: folder.path().to_owned(), guest: "/own".into() });
    let kept = |name: &str, weakness: Weakness| {
        let path = folder.path().join(name);
        let file = std::fs::File::create(&path).unwrap();
        (&file).write_all(&vec![b'x'; 128 << 20]).unwrap();
        file.sync_all().unwrap();
        // SAFETY: the call takes a descriptor and numbers; 4 is POSIX_FADV_DONTNEED.
        assert_eq!(unsafe { libc::posix_fadvise(file.as_raw_fd(), 0, 0, 4) }, 0);
        let container = world.bounded(weakness, &bounds);
        let ran = finish(start(&container, &shell(&format!("cat /own/{name} > /dev/null && echo done"))));
        assert_eq!(ran.text, "done\n", "{ran:?}");
        container.destroy().unwrap();
        in_memory(&std::fs::File::open(&path).unwrap())
    };
    let bounded = kept("bounded", Weakness::NONE);
    assert!(bounded <= 40 << 20, "{bounded} bytes stay in memory, of a container with 32 MiB");
    world.assert_others_are_served();
    let free = kept("free", Weakness::NO_GROUP);
    control(free > 80 << 20, format!("{free} bytes stay in memory"));
}

/// Bytes of a file that are in memory.
fn in_memory(file: &std::fs::File) -> usize {
    let len = usize::try_from(file.metadata().unwrap().len()).unwrap();
    let mut pages = vec![0_u8; len.div_ceil(4096)];
    // SAFETY: maps a file for reading where the kernel likes; nobody reads there, and the
    // table has a byte for each page of it.
    unsafe {
        let at =
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, file.as_raw_fd(), 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mincore(at, len, pages.as_mut_ptr()), 0);
        assert_eq!(libc::munmap(at, len), 0);
    }
    pages.iter().filter(|page| **page & 1 != 0).count() * 4096
}

fn blocked_signals(world: &World) {
    let container = world.container(Weakness::NONE);
    let (mut process, mut reader) = start(&container, &attacker(&["block-signals"]));
    let mut said = [0; 11];
    reader.read_exact(&mut said).unwrap();
    assert_eq!(&said, b"still here\n", "a signal that can be blocked does nothing");
    container.kill();
    assert_eq!(process.wait(Duration::from_secs(2)).unwrap(), Some(Exit::Signal(9)));
    container.destroy().unwrap();
    assert_outlives(world, &attacker(&["block-signals"]));
}

fn daemon(world: &World) {
    let before = Host::at_rest();
    let container = world.container(Weakness::NONE);
    let prepared = Host::look();
    let ran = finish(start(&container, &attacker(&["daemon"])));
    assert_eq!(ran.text, "done\n");
    // What started it is reaped by pid 1, in its own time.
    std::thread::sleep(Duration::from_millis(200));
    let after = Host::look();
    assert_eq!(after.processes.len(), prepared.processes.len() + 1, "the daemon outlives what started it");
    container.destroy().unwrap();
    before.assert_unchanged();
    assert_outlives(world, &attacker(&["daemon"]));
}

fn throttled_crowd(world: &World) {
    let bounds = Bounds { cpu_percent: 2, ..Bounds::default() };
    let container = world.bounded(Weakness::NONE, &bounds);
    let script = "for i in 1 2 3 4 5 6 7 8; do (trap '' TERM HUP INT; while :; do :; done) & done; wait";
    let (mut process, _reader) = start(&container, &shell(script));
    assert_eq!(process.wait(Duration::from_millis(500)).unwrap(), None);
    world.assert_others_are_served();
    let began = Instant::now();
    container.destroy().unwrap();
    assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
    let crowd = script.replace("wait", "echo here; wait").replace("1 2 3 4 5 6 7 8", "1 2 3");
    assert_outlives(world, &shell(&crowd));
}

/// The control of what ends with its container: where this has no process numbers of its
/// own, with whose first all others end, some are left.
fn assert_outlives(world: &World, program: &Program) {
    if !world.is_root() {
        // Of whom it is could not be seen afterwards.
        return no_control("not root");
    }
    let before = Host::at_rest();
    let container = world.container(Weakness::HOST_PROCESSES.and(Weakness::NO_GROUP));
    let (process, mut reader) = start(&container, program);
    reader.read_exact(&mut [0]).unwrap();
    container.destroy().unwrap();
    let left: Vec<u32> = Host::look().processes.difference(&before.processes).copied().collect();
    for process in left.iter().filter_map(|pid| linux::open_process(*pid).ok()) {
        linux::kill_process(process.as_fd()).unwrap();
    }
    drop((process, reader));
    before.assert_unchanged();
    control(!left.is_empty(), "nothing is left");
}
