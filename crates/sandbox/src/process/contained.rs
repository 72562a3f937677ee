// SPDX-License-Identifier: Apache-2.0
//! Containers as places for instances, some of them made in advance.
//!
//! A thread of its own replaces what was taken, so that a new instance finds
//! its container ready; a container serves one instance and no other.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::bounds::{Bounds, Weakness};
use super::container::{Container, Process, Program};
use super::instance::Counted;
use super::options::Room;
use super::place::{Confinement, Place, Places};
use super::pool::Pool;
use super::realm::Realm;
use super::recipe;
use super::rootfs::{Bind, Rootfs};
use super::runtime::Runtime;

/// After a container could not be made, the next attempt waits so long.
const RETRY: Duration = Duration::from_secs(5);
/// What was taken is replaced so much later: whoever took it uses the
/// processor now.
const PAUSE: Duration = Duration::from_millis(15);

/// Numbers of the kernel's limits, and what this machine calls them.
const LIMIT_FSIZE: u32 = 1;
const LIMIT_DATA: u32 = 2;
const LIMIT_CORE: u32 = 4;
const LIMIT_NPROC: u32 = 6;
const LIMIT_NOFILE: u32 = 7;
const LIMIT_MEMLOCK: u32 = 8;
const LIMIT_MSGQUEUE: u32 = 12;

/// Makes containers that hold an interpreter.
pub(crate) struct Containers {
    runtime: Arc<Runtime>,
    realm: Option<Arc<Realm>>,
    rootfs: Rootfs,
    usual: Room,
    ready: Arc<Ready>,
    filler: Option<JoinHandle<()>>,
}

struct Ready {
    pool: Pool,
    /// Whether it is to be filled, and whether it is over.
    wanted: Mutex<(bool, bool)>,
    changed: Condvar,
}

impl Containers {
    /// Containers that see the interpreter's directories, of which up to
    /// `ready` with `usual` bounds are kept prepared. Files of functions come
    /// from below `layers`. All of them are made in the realm, if there is one.
    pub(crate) fn new(
        runtime: Arc<Runtime>,
        realm: Option<Arc<Realm>>,
        prefixes: &[PathBuf],
        layers: Option<&Path>,
        usual: Room,
        ready: usize,
    ) -> Result<Self, String> {
        let mut rootfs = rootfs(prefixes, usual.tmp_bytes);
        // As root, mounts are brought from outside.
        rootfs.shelf = layers.filter(|_| !runtime.abilities().is_root).map(Path::to_owned);
        let pool = Pool::new(runtime.clone(), rootfs.clone(), bounds(usual), ready).within(realm.clone());
        let ready = Arc::new(Ready { pool, wanted: Mutex::new((true, false)), changed: Condvar::new() });
        let filling = ready.clone();
        let making = runtime.clone();
        let filler = std::thread::Builder::new().name("containers".to_owned()).spawn(move || {
            making.give_way();
            filling.fill();
        });
        let filler = Some(filler.map_err(|error| format!("no thread to prepare containers: {error}"))?);
        Ok(Self { runtime, realm, rootfs, usual, ready, filler })
    }
}

impl Drop for Containers {
    fn drop(&mut self) {
        self.ready.wanted.lock().1 = true;
        self.ready.changed.notify_all();
        if let Some(filler) = self.filler.take() {
            // It only ends; what it might have panicked about is told there.
            _ = filler.join();
        }
        self.ready.pool.drain();
    }
}

impl Ready {
    fn fill(&self) {
        loop {
            {
                let mut wanted = self.wanted.lock();
                while !wanted.0 && !wanted.1 {
                    self.changed.wait(&mut wanted);
                }
                let until = Instant::now() + PAUSE;
                while !wanted.1 && !self.changed.wait_until(&mut wanted, until).timed_out() {}
                if wanted.1 {
                    return;
                }
                wanted.0 = false;
            }
            loop {
                match self.pool.fill() {
                    Ok(true) if !self.wanted.lock().1 => {}
                    Ok(_) => break,
                    Err(_) => {
                        // Whoever needs one makes it and hears why it fails.
                        let mut wanted = self.wanted.lock();
                        if !wanted.1 {
                            self.changed.wait_for(&mut wanted, RETRY);
                        }
                        break;
                    }
                }
            }
        }
    }
}

impl Places for Containers {
    fn prepare(&self, room: Room) -> Result<Box<dyn Place>, String> {
        let container = if room == self.usual {
            let taken = self.ready.pool.take();
            self.ready.wanted.lock().0 = true;
            self.ready.changed.notify_all();
            taken
        } else {
            let rootfs = Rootfs { tmp_bytes: room.tmp_bytes, ..self.rootfs.clone() };
            self.runtime.prepare_within(self.realm.as_deref(), &rootfs, &bounds(room))
        };
        Ok(Box::new(container.map_err(|error| error.to_string())?))
    }

    fn ready(&self) -> usize {
        self.ready.pool.ready()
    }
}

impl Counted for Container {
    fn cpu_ns(&self) -> Option<u64> {
        self.gauges()?.cpu_ns()
    }

    fn memory_peak_bytes(&self) -> Option<u64> {
        self.gauges()?.memory_peak_bytes()
    }
}

impl Place for Container {
    fn attach(&self, binds: &[Bind]) -> Result<(), String> {
        self.attach(binds).map_err(|error| error.to_string())
    }

    fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        Some(self.pidfd())
    }

    fn doors(&self) -> Arc<[OwnedFd]> {
        self.doors()
    }

    fn joins(&self) -> Vec<BorrowedFd<'_>> {
        // In a realm they are no template's.
        if self.is_in_realm() { Vec::new() } else { self.joins() }
    }

    fn admit(&self) -> Result<(), String> {
        if !self.is_in_realm() {
            return Ok(());
        }
        self.close_doors();
        self.admit().map_err(|error| error.to_string())
    }

    fn confinement(&self) -> Confinement {
        let own = self.confinement();
        let weak = |weakness| own.weakness.has(weakness);
        let limits = [
            (LIMIT_NOFILE, own.limits.files),
            (LIMIT_NPROC, own.limits.processes),
            (LIMIT_FSIZE, own.limits.file_bytes),
            (LIMIT_CORE, own.limits.core_bytes),
            (LIMIT_MSGQUEUE, own.limits.queue_bytes),
            (LIMIT_MEMLOCK, own.limits.locked_bytes),
            (LIMIT_DATA, own.limits.data_bytes),
        ];
        let rlimits = limits.into_iter().filter_map(|(which, most)| {
            let most = i64::try_from(most?).unwrap_or(i64::MAX);
            Some((which, most, most))
        });
        let is_root = weak(Weakness::ROOT);
        Confinement {
            setns_flags: own.namespaces.bits(),
            uid: if is_root { 0 } else { own.user },
            gid: if is_root { 0 } else { own.group },
            rlimits: if weak(Weakness::NO_LIMITS) { Vec::new() } else { rlimits.collect() },
            landlock: !weak(Weakness::NO_LANDLOCK),
            has_one_user: own.has_user_namespace,
            seccomp: if weak(Weakness::ANY_CALL) { Vec::new() } else { own.filter.bytes().to_vec() },
        }
    }

    fn listen(&self, port: u16) -> Result<TcpListener, String> {
        self.listen(port).map_err(|error| error.to_string())
    }

    fn connect(&self, port: u16) -> Result<TcpStream, String> {
        self.connect(port).map_err(|error| error.to_string())
    }

    fn run(&self, program: &Program, stdio: [OwnedFd; 3]) -> Result<Process, String> {
        self.run(program, stdio).map_err(|error| error.to_string())
    }

    fn signal(&self, number: u32, signal: i32) -> bool {
        self.lift_cpu_limit();
        self.process(number).is_some_and(|process| linux::send_signal(process.as_fd(), signal).is_ok())
    }

    fn kill(&self) {
        self.kill();
    }

    fn oom_kills(&self) -> u64 {
        // What cannot be read is not put down to memory.
        self.usage().map_or(0, |usage| usage.oom_kills)
    }

    fn memory_bytes(&self) -> Option<u64> {
        // A group with a process in it has some memory; zero says that there
        // are no groups.
        self.usage().ok().map(|usage| usage.memory_bytes).filter(|bytes| *bytes > 0)
    }
}

pub(super) fn bounds(room: Room) -> Bounds {
    let Room { memory_bytes, processes, cpu_percent, files, tmp_bytes: _, disk_bytes_per_s } = room;
    Bounds { memory_bytes, processes, cpu_percent, files, disk_bytes_per_s }
}

/// The host's programs, and the directories of the interpreter that are not
/// among them.
pub(super) fn rootfs(prefixes: &[PathBuf], tmp_bytes: u64) -> Rootfs {
    let places = recipe::places().map(PathBuf::from).collect();
    let mut rootfs = Rootfs { places, tmp_bytes, ..Rootfs::host_programs() };
    for prefix in prefixes {
        let is_linked = rootfs.links.iter().any(|(link, _)| prefix.starts_with(link));
        let is_seen = is_linked || rootfs.read_only.iter().any(|bind| prefix.starts_with(&bind.guest));
        if !is_seen && prefix.parent().is_some_and(|parent| parent != Path::new("")) {
            rootfs.read_only.push(Bind::same(prefix));
        }
    }
    rootfs
}
