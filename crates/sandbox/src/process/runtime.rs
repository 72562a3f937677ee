// SPDX-License-Identifier: Apache-2.0
//! What makes containers, after having looked at what this machine can do.

use std::ffi::OsString;
use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Instant;

use linux::{Argument, Cgroup, CgroupLimits, Controller, Hierarchies, Namespaces, SyscallFilter};

use super::bounds::{Bounds, Weakness};
use super::confinement::Confinement;
use super::container::{ANSWER_PATIENCE, Container, Made, Within, reason, receive};
use super::error::Error;
use super::filter::{program_filter, template_filter};
use super::init::{self, MAKER, PID_1, READY};
use super::plan::{Plan, Users};
use super::realm::{Ground, Realm};
use super::rootfs::Rootfs;

/// Users of containers are numbered from here on: no account has such a number,
/// and no range that is handed out to user namespaces contains it.
const USERS_FIRST: u32 = 0x7000_0000;
/// Users of the containers of one node.
const USERS_COUNT: u32 = 1 << 12;
/// Of these, containers on the host have the lower ones, and each realm a share of
/// the others.
const USERS_OF_HOST: u32 = USERS_COUNT / 2;
const REALM_USERS: u32 = 1 << 8;
const REALM_USERS_SHARES: u32 = USERS_OF_HOST / REALM_USERS;
/// The bits of a number by which such a user is known.
const USERS_MASK: u32 = 0xf000_0000;
/// Processes of a realm that has one user, those of all its instances together: the
/// kernel counts them by the user that made their namespaces.
const REALM_PROCESSES: u64 = 1 << 12;
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
        const DELEGATE: &str = "start the node as root, or in a control group of its own: systemd-run --user --scope -p Delegate=yes sinew up";
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

/// The first user of this node's containers.
fn first_user() -> u32 {
    USERS_FIRST | (std::process::id() & 0xffff) << USERS_COUNT.trailing_zeros()
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
/// The same of realms.
static REALMS: AtomicU32 = AtomicU32::new(0);

impl Runtime {
    /// Looks at what the machine can do.
    ///
    /// # Errors
    /// [`Error::Unavailable`] if a layer is missing without which there is no
    /// sandbox: namespaces or the filter.
    pub fn new(options: RuntimeOptions) -> Result<Arc<Self>, Error> {
        let hierarchies = Hierarchies::claim().map_err(Error::kernel("look for control groups"))?;
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
        let users = if self.abilities.is_root {
            Users::Host
        } else {
            let (user, group) = linux::own_user();
            Users::One { inside: USER_INSIDE, user, group }
        };
        self.make(rootfs, bounds, users, None)
    }

    /// Makes a realm: a container for a template, in which the containers of its
    /// instances are made.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub(super) fn prepare_realm(
        &self,
        rootfs: &Rootfs,
        bounds: &Bounds,
        all_bytes: Option<u64>,
    ) -> Result<(Container, Arc<Ground>), Error> {
        let number = REALMS.fetch_add(1, Ordering::Relaxed);
        let users_first = first_user() | USERS_OF_HOST | ((number % REALM_USERS_SHARES) * REALM_USERS);
        let all = if self.hierarchies.version() == 0 || self.options.weakness.has(Weakness::NO_GROUP) {
            None
        } else {
            let name = format!("{}-{}-realm-{number}", self.options.cgroup_name, std::process::id());
            let limits = CgroupLimits { memory_bytes: all_bytes, ..CgroupLimits::default() };
            let group = Cgroup::create(&self.hierarchies, &name, &limits);
            Some(group.map_err(Error::kernel("make a control group for a realm"))?)
        };
        let below = all.as_ref().map(|all| self.hierarchies.below(all));
        let hierarchies = below.unwrap_or_else(|| self.hierarchies.clone());
        let ground = Arc::new(Ground { users_first, hierarchies, all, all_bytes });
        let users = if self.abilities.is_root {
            Users::Realm { first: users_first, count: REALM_USERS }
        } else {
            let (user, group) = linux::own_user();
            Users::RealmOfOne { inside: USER_INSIDE, user, group }
        };
        Ok((self.make(rootfs, bounds, users, Some((&ground, None)))?, ground))
    }

    /// Makes a container in a realm, or where there is none, anywhere.
    ///
    /// # Errors
    /// As [`prepare`](Self::prepare).
    pub(super) fn prepare_within(
        &self,
        realm: Option<&Realm>,
        rootfs: &Rootfs,
        bounds: &Bounds,
    ) -> Result<Container, Error> {
        match realm {
            Some(realm) => {
                let users = match self.abilities.is_root {
                    true => Users::Within,
                    false => Users::OneWithin { inside: USER_INSIDE },
                };
                self.make(rootfs, bounds, users, Some((realm.ground(), Some(realm.container()))))
            }
            None => self.prepare(rootfs, bounds),
        }
    }

    fn make(
        &self,
        rootfs: &Rootfs,
        bounds: &Bounds,
        users: Users,
        realm: Option<(&Arc<Ground>, Option<&Container>)>,
    ) -> Result<Container, Error> {
        rootfs.check()?;
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let weakness = self.options.weakness;
        let ground = realm.map(|(ground, _)| ground);
        let confinement = self.confinement(rootfs, bounds, number, users, ground)?;
        let plan = Plan {
            users,
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
            let hierarchies = ground.map_or(&self.hierarchies, |ground| &ground.hierarchies);
            let group = Cgroup::create(hierarchies, &name, &bounds.of_group());
            Some(group.map_err(Error::kernel("make a control group"))?)
        };
        let (control, theirs) = linux::message_pair().map_err(Error::kernel("make a socket"))?;
        let starting = Starting(self.start(theirs)?);
        let realm = realm.and_then(|(ground, container)| Some((ground, container?)));
        let made = starting.follow(&control, &plan, realm)?;
        let shelf = rootfs.shelf.clone();
        Ok(Container::new(made, control, group, confinement, shelf))
    }

    fn confinement(
        &self,
        rootfs: &Rootfs,
        bounds: &Bounds,
        number: u32,
        users: Users,
        ground: Option<&Arc<Ground>>,
    ) -> Result<Confinement, Error> {
        let weakness = self.options.weakness;
        let own = init::namespaces(weakness).without(Namespaces::PID);
        let (namespaces, user, has_user_namespace) = match users {
            Users::One { inside, .. } | Users::RealmOfOne { inside, .. } | Users::OneWithin { inside } => {
                (own.and(Namespaces::USER), inside, true)
            }
            Users::Realm { first, .. } => (own, first, false),
            // Of its own, so that a limit of processes is not shared.
            Users::Host => (own, first_user() | (number % USERS_OF_HOST), false),
            // The first one is its template's.
            Users::Within => {
                let first = ground.map_or_else(first_user, |ground| ground.users_first);
                (own, first + 1 + number % (REALM_USERS - 1), false)
            }
        };
        let is_realm = users.is_realm();
        let filter = if is_realm {
            let (mask, value) = match users {
                _ if weakness.has(Weakness::ANY_USER) => (0, 0),
                Users::RealmOfOne { inside, .. } => (u32::MAX, inside),
                _ => (USERS_MASK, USERS_FIRST),
            };
            template_filter(Argument { index: 0, mask, value })
                .map_err(Error::kernel("build the filter of a template"))?
        } else {
            self.filter.clone()
        };
        let mut limits = bounds.of_process(rootfs.quota().0, self.abilities.limits_memory);
        if is_realm {
            // What its instances inherit they could not raise. Its own files have a quota.
            limits.file_bytes = None;
            limits.data_bytes = limits.data_bytes.and(ground.and_then(|ground| ground.all_bytes));
            if users.is_one() {
                limits.processes = limits.processes.map(|most| most.max(REALM_PROCESSES));
            }
        }
        Ok(Confinement {
            namespaces,
            has_user_namespace,
            capabilities: if is_realm { init::CAPABILITIES_OF_TEMPLATE } else { 0 },
            has_landlock: !is_realm,
            has_fixed_addresses: is_realm,
            user,
            group: user,
            limits,
            filter,
            weakness,
        })
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
            // Of its own, in which its siblings are found that could not say who they are.
            .process_group(0)
            .stdin(Stdio::from(control));
        command.stdout(Stdio::null()).stderr(Stdio::null());
        command.spawn().map_err(Error::kernel("start a container's init"))
    }
}

/// The process that makes the namespaces; it ends when pid 1 is there.
struct Starting(Child);

impl Starting {
    /// Tells the plan, and waits until the container is made.
    fn follow(
        mut self,
        control: &OwnedFd,
        plan: &[u8],
        realm: Option<(&Arc<Ground>, &Container)>,
    ) -> Result<Made, Error> {
        let mut told = Told::default();
        let entered = realm.map(|(_, container)| container.doors());
        let entered: Vec<BorrowedFd<'_>> =
            entered.iter().flat_map(|all| all.iter()).map(OwnedFd::as_fd).collect();
        let made = told.converse(control, plan, &entered);
        if made.is_ok() {
            // They have nothing more to do than to end.
            let _ = self.0.wait();
            if let Some(maker) = &told.maker {
                let _ = linux::wait_process(maker.as_fd(), ANSWER_PATIENCE);
            }
            let within = realm.map(|(ground, container)| {
                let realm = container.pidfd().try_clone_to_owned()?;
                Ok(Within { realm, ground: Arc::clone(ground) })
            });
            let within = within.transpose().map_err(Error::kernel("hold a realm"))?;
            return Ok(Made { pidfd: told.pid_1.ok_or(Error::Ended)?, doors: told.doors, within });
        }
        // One of them may have failed before another one was told of.
        linux::end_messages(control);
        let _ = self.0.kill();
        while let Ok(Some((answer, fds))) = linux::receive_message(control) {
            told.take(&answer, fds);
        }
        for process in [&told.maker, &told.pid_1].into_iter().flatten() {
            let _ = linux::kill_process(process.as_fd());
            let _ = linux::wait_process(process.as_fd(), ANSWER_PATIENCE);
        }
        // Who could not say who it is. Unreaped it would be there for ever, and hold a
        // realm's pid 1.
        linux::kill_group(self.0.id());
        let _ = self.0.wait();
        linux::reap_group(self.0.id(), ANSWER_PATIENCE);
        made.and(Err(Error::Ended))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// What an init has told until its container is ready.
#[derive(Default)]
struct Told {
    pid_1: Option<OwnedFd>,
    /// The process that makes it, if that is another one than was started.
    maker: Option<OwnedFd>,
    doors: Vec<OwnedFd>,
}

impl Told {
    fn converse(&mut self, control: &OwnedFd, plan: &[u8], fds: &[BorrowedFd<'_>]) -> Result<(), Error> {
        let began = Instant::now();
        linux::send_message(control, plan, fds).map_err(|error| Error::Prepare(error.to_string()))?;
        let mut is_ready = false;
        while self.pid_1.is_none() || !is_ready || self.maker.is_none() && !fds.is_empty() {
            if began.elapsed() > ANSWER_PATIENCE {
                return Err(Error::Timeout("the init", ANSWER_PATIENCE.as_secs()));
            }
            let Some((answer, fds)) = receive(control, "the init")? else {
                return Err(Error::Prepare("the init ended".to_owned()));
            };
            is_ready |= answer.first() == Some(&READY);
            if !self.take(&answer, fds) {
                return Err(Error::Prepare(reason(&answer)));
            }
        }
        Ok(())
    }

    /// False for what says that it failed.
    fn take(&mut self, answer: &[u8], fds: Vec<OwnedFd>) -> bool {
        match answer.first() {
            Some(&PID_1) => self.pid_1 = fds.into_iter().next(),
            Some(&MAKER) => self.maker = fds.into_iter().next(),
            Some(&READY) => self.doors = fds,
            _ => return false,
        }
        true
    }
}
