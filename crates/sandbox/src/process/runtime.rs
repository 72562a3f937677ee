// SPDX-License-Identifier: Apache-2.0
//! What makes containers, after having looked at what this machine can do.

use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd as _, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use linux::{Cgroup, Controller, Hierarchies, Namespaces, SyscallFilter};

use super::bounds::{Bounds, Weakness};
use super::confinement::Confinement;
use super::container::{ANSWER_PATIENCE, Container, reason, receive};
use super::error::Error;
use super::filter::program_filter;
use super::init::{self, PID_1, READY};
use super::plan::Plan;
use super::rootfs::Rootfs;

/// Users of containers are numbered from here on: no account has such a number,
/// and no range that is handed out to user namespaces contains it.
const USERS_FIRST: u32 = 0x7000_0000;
/// The only user of a container with a user namespace, as seen inside.
const USER_INSIDE: u32 = 60_000;
/// The capabilities that preparing containers takes: CAP_SYS_ADMIN, to change
/// user, group and bounding set.
const CAPABILITIES_NEEDED: u64 = 1 << 21 | 1 << 6 | 1 << 7 | 1 << 8;

/// CAP_SYS_NICE: with it a thread that gave way can start what does not.
const CAPABILITY_NICE: u64 = 1 << 23;
/// By how much who prepares in advance gives way: enough for a call that begins
/// to have the processor at once, and little enough that what holds a lock of
/// the kernel meanwhile is not starved.
const NICENESS_AHEAD: i32 = 5;

/// How a [`Runtime`] is set up.
#[derive(Debug, Clone)]
pub struct RuntimeOptions {
    /// Program and arguments to execute as a container's init; it must call
    /// [`init::main`](super::init::main) before it starts a thread.
    pub init: Vec<OsString>,
    /// Containers' control groups have names that begin so.
    pub cgroup_name: String,
    /// Defences that are off.
    #[doc(hidden)]
    pub weakness: Weakness,
}

impl Default for RuntimeOptions {
    fn default() -> Self {
        Self {
            init: vec!["/proc/self/exe".into(), "sandbox-init".into()],
            cgroup_name: "sinew".to_owned(),
            weakness: Weakness::NONE,
        }
    }
}

/// What this machine lets containers have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abilities {
    /// Containers are made with the rights of root; else with a user namespace.
    pub is_root: bool,
    /// Memory can be limited.
    pub limits_memory: bool,
    /// The number of processes can be limited for a container; else only for
    /// its user.
    pub limits_processes: bool,
    /// Processor time can be limited.
    pub limits_cpu: bool,
    /// What is read from and written to disks can be limited.
    pub limits_disk: bool,
    /// Version of the control groups in use; 0 for none.
    pub cgroup_version: u8,
    /// System calls can be filtered.
    pub filters_calls: bool,
    /// The version of Landlock, a second wall around files.
    pub landlock: Option<u32>,
}

/// One layer of confinement, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ability {
    /// A short name.
    pub name: &'static str,
    /// Whether it holds here.
    pub holds: bool,
    /// Whether containers are made without it.
    pub is_optional: bool,
    /// What was found.
    pub detail: String,
    /// What to do if it does not hold.
    pub remedy: &'static str,
}

impl Abilities {
    /// Looks at this machine, and at what this process may do.
    ///
    /// # Errors
    /// What reading `/proc/self` says.
    pub fn look() -> Result<Self, Error> {
        Ok(Self::with(&Hierarchies::discover().map_err(Error::kernel("look for control groups"))?))
    }

    fn with(hierarchies: &Hierarchies) -> Self {
        let held = linux::capabilities().unwrap_or(0);
        Self {
            is_root: held & CAPABILITIES_NEEDED == CAPABILITIES_NEEDED,
            limits_memory: hierarchies.has(Controller::Memory),
            limits_processes: hierarchies.has(Controller::Processes),
            limits_cpu: hierarchies.has(Controller::Cpu),
            limits_disk: hierarchies.has(Controller::Disk),
            cgroup_version: hierarchies.version(),
            filters_calls: linux::has_syscall_filters(),
            landlock: linux::landlock_version(),
        }
    }

    /// Each layer, whether it holds, and what to do if not.
    pub fn layers(&self) -> Vec<Ability> {
        const DELEGATE: &str = "start the node as root, or under systemd with Delegate=yes";
        let layer = |name, holds, is_optional, detail: String, remedy| Ability {
            name,
            holds,
            is_optional,
            detail,
            remedy,
        };
        let limit = |name, holds: bool, instead: &str| {
            let version = self.cgroup_version;
            let detail = if holds {
                format!("limited by control groups, version {version}")
            } else {
                format!("no control group; {instead}")
            };
            layer(name, holds, true, detail, DELEGATE)
        };
        let users = if self.is_root {
            "as root: containers' users are unprivileged ones of their own".to_owned()
        } else {
            "not root: containers get user namespaces".to_owned()
        };
        let filter =
            if self.filters_calls { "system calls are filtered" } else { "the kernel has no seccomp" };
        let landlock = match self.landlock {
            Some(version) => format!("version {version}"),
            None => "the kernel has none; mounts alone protect files".to_owned(),
        };
        let has_namespaces = self.is_root || user_namespaces_are_on();
        vec![
            layer("namespaces", has_namespaces, false, users, NAMESPACES_REMEDY),
            limit(
                "memory limit",
                self.limits_memory,
                "each process of a function may have as much as all of them should have together",
            ),
            limit(
                "process limit",
                self.limits_processes,
                "the processes of a container's user are counted, in its user namespace",
            ),
            limit("cpu limit", self.limits_cpu, "functions take all the processor time that is there"),
            limit("disk limit", self.limits_disk, "the `disk` of a function's sinew.toml holds nobody back"),
            layer(
                "seccomp",
                self.filters_calls,
                false,
                filter.to_owned(),
                "use a kernel with CONFIG_SECCOMP_FILTER",
            ),
            layer(
                "landlock",
                self.landlock.is_some(),
                true,
                landlock,
                "use a kernel with `landlock` in its lsm= list",
            ),
        ]
    }
}

const NAMESPACES_REMEDY: &str = "start the node as root, or allow user namespaces: sysctl user.max_user_namespaces, kernel.unprivileged_userns_clone";

fn user_namespaces_are_on() -> bool {
    let number = |file: &str| fs::read_to_string(file).ok().and_then(|text| text.trim().parse::<u64>().ok());
    number("/proc/sys/user/max_user_namespaces").is_some_and(|most| most > 0)
        && number("/proc/sys/kernel/unprivileged_userns_clone") != Some(0)
        && number("/proc/sys/kernel/apparmor_restrict_unprivileged_userns") != Some(1)
}

/// Makes containers.
#[derive(Debug)]
pub struct Runtime {
    options: RuntimeOptions,
    abilities: Abilities,
    hierarchies: Hierarchies,
    filter: SyscallFilter,
    /// Of what runs in containers.
    niceness: i32,
}

/// Containers made so far by this process: it numbers them, also if there is
/// more than one runtime.
static COUNT: AtomicU32 = AtomicU32::new(0);

impl Runtime {
    /// Looks at what the machine can do.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a layer is missing without which there is no
    /// sandbox: namespaces or the filter.
    pub fn new(options: RuntimeOptions) -> Result<Arc<Self>, Error> {
        let hierarchies = Hierarchies::discover().map_err(Error::kernel("look for control groups"))?;
        let abilities = Abilities::with(&hierarchies);
        if let Some(missing) = abilities.layers().into_iter().find(|layer| !layer.holds && !layer.is_optional)
        {
            let what = format!("{}: {}", missing.name, missing.detail);
            return Err(Error::Unavailable { what, remedy: missing.remedy });
        }
        if options.init.is_empty() {
            return Err(Error::Invalid("no program for the init is given".to_owned()));
        }
        // What a node that was killed could not take away.
        hierarchies.sweep(&options.cgroup_name);
        let filter = program_filter().map_err(Error::kernel("build the filter of system calls"))?;
        let niceness = linux::niceness().map_err(Error::kernel("read the own priority"))?;
        Ok(Arc::new(Self { options, abilities, hierarchies, filter, niceness }))
    }

    /// What holds here, and what does not.
    pub fn abilities(&self) -> &Abilities {
        &self.abilities
    }

    /// Has the calling thread, and containers while it makes them, give way to
    /// calls, if that can be taken back for what will run in them. For threads
    /// that only prepare.
    pub(super) fn give_way(&self) {
        let held = linux::capabilities().unwrap_or(0);
        if held & CAPABILITY_NICE != 0 {
            // Else it competes with calls: slower, no more.
            let _ = linux::lower_priority(NICENESS_AHEAD);
        }
    }

    /// Makes a container, in milliseconds.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a place that cannot be bound,
    /// [`Error::Prepare`] with what the init says, or [`Error::Kernel`].
    /// Nothing is left behind then.
    pub fn prepare(&self, rootfs: &Rootfs, bounds: &Bounds) -> Result<Container, Error> {
        rootfs.check()?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let weakness = self.options.weakness;
        let confinement = self.confinement(rootfs, bounds, number);
        let plan = Plan {
            user_namespace: confinement.has_user_namespace.then(|| {
                let (user, group) = linux::own_user();
                (USER_INSIDE, user, group)
            }),
            host_name: "sandbox".to_owned(),
            rootfs: rootfs.clone(),
            niceness: self.niceness,
            weakness,
        }
        .encode();
        let group = if self.hierarchies.version() == 0 || weakness.has(Weakness::NO_GROUP) {
            None
        } else {
            let name = format!("{}-{}-{number}", self.options.cgroup_name, std::process::id());
            let group = Cgroup::create(&self.hierarchies, &name, &bounds.of_group());
            Some(group.map_err(Error::kernel("make a control group"))?)
        };
        let (control, theirs) = linux::message_pair().map_err(Error::kernel("make a socket"))?;
        let starting = Starting(self.start(theirs)?);
        let pidfd = starting.follow(&control, &plan)?;
        let shelf = rootfs.shelf.clone();
        Ok(Container::new(pidfd, control, group, confinement, shelf))
    }

    fn confinement(&self, rootfs: &Rootfs, bounds: &Bounds, number: u32) -> Confinement {
        let weakness = self.options.weakness;
        let has_user_namespace = !self.abilities.is_root;
        let own = init::namespaces(weakness).without(Namespaces::PID);
        let user = if has_user_namespace {
            USER_INSIDE
        } else {
            // Of its own, so that a limit of processes is not shared.
            USERS_FIRST + ((std::process::id() & 0xffff) << 12 | (number & 0xfff))
        };
        Confinement {
            namespaces: if has_user_namespace { own.and(Namespaces::USER) } else { own },
            has_user_namespace,
            user,
            group: user,
            limits: bounds.of_process(rootfs.quota().0, self.abilities.limits_memory),
            filter: self.filter.clone(),
            weakness,
        }
    }

    #[expect(clippy::disallowed_methods, reason = "this is where containers are started")]
    fn start(&self, control: OwnedFd) -> Result<Child, Error> {
        let (program, arguments) = self.options.init.split_first().ok_or(Error::Ended)?;
        let mut command = Command::new(program);
        command
            .args(arguments)
            .env_clear()
            .envs([linux::SMALL_HEAP])
            .current_dir("/")
            .stdin(Stdio::from(control));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map_err(Error::kernel("start a container's init"))
    }
}

/// The process that makes the namespaces; it ends when pid 1 is there.
struct Starting(Child);

impl Starting {
    /// Tells the plan, and waits until the container is made.
    fn follow(mut self, control: &OwnedFd, plan: &[u8]) -> Result<OwnedFd, Error> {
        let mut pid_1 = None;
        let made = converse(control, plan, &mut pid_1);
        if made.is_ok() {
            // It has nothing more to do than to end.
            let _ = self.0.wait();
            return pid_1.ok_or(Error::Ended);
        }
        if let Some(pidfd) = &pid_1 {
            let _ = linux::kill_process(pidfd.as_fd());
            let _ = linux::wait_process(pidfd.as_fd(), ANSWER_PATIENCE);
        }
        made.and(Err(Error::Ended))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Speaks with an init until its container is ready; its pid 1 comes to be
/// known on the way.
fn converse(control: &OwnedFd, plan: &[u8], pid_1: &mut Option<OwnedFd>) -> Result<(), Error> {
    let began = Instant::now();
    linux::send_message(control, plan, &[]).map_err(|error| Error::Prepare(error.to_string()))?;
    let mut is_ready = false;
    while pid_1.is_none() || !is_ready {
        if began.elapsed() > ANSWER_PATIENCE {
            return Err(Error::Timeout("the init", ANSWER_PATIENCE.as_secs()));
        }
        let Some((answer, fds)) = receive(control, "the init")? else {
            return Err(Error::Prepare("the init ended".to_owned()));
        };
        match answer.first() {
            Some(&PID_1) => *pid_1 = fds.into_iter().next(),
            Some(&READY) => is_ready = true,
            _ => return Err(Error::Prepare(reason(&answer))),
        }
    }
    Ok(())
}
