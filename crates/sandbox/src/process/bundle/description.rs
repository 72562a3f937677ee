// SPDX-License-Identifier: Apache-2.0
//! What a bundle asks for, in types. Whatever the runtime cannot do has no
//! place here.

use std::ffi::OsString;
use std::path::PathBuf;

use linux::{DeviceKind, HeldCapabilities, MountFlags, Namespaces, Propagation, SyscallFilter};

use super::resources::Resources;
use crate::process::Error;

/// A container to be made.
#[derive(Debug, Clone, Default)]
pub struct Bundle {
    /// The file tree.
    pub root: RootOf,
    /// Mounts in it, in this order.
    pub mounts: Vec<Mount>,
    /// What to run; a container without can be made, but not started.
    pub process: Option<ProcessOf>,
    /// Namespaces that the container does not share with whoever makes it.
    pub namespaces: Vec<NamespaceOf>,
    /// Users of a new user namespace.
    pub users: Vec<IdRange>,
    /// Groups of a new user namespace.
    pub groups: Vec<IdRange>,
    /// The host's name, in a namespace of its own.
    pub host_name: Option<String>,
    /// The path of its control group.
    pub control_group: PathBuf,
    /// What the control group limits.
    pub resources: Resources,
    /// Devices besides those that every container has.
    pub devices: Vec<Device>,
    /// Paths that are empty there.
    pub masked: Vec<PathBuf>,
    /// Paths that cannot be written there.
    pub read_only: Vec<PathBuf>,
    /// Kernel parameters, of the container's namespaces only.
    pub parameters: Vec<(String, String)>,
}

/// The file tree.
#[derive(Debug, Clone, Default)]
pub struct RootOf {
    /// A folder of the host, absolute.
    pub path: PathBuf,
    /// Whether it cannot be written.
    pub is_read_only: bool,
    /// What others see of the mounts in it.
    pub propagation: Option<Propagation>,
}

/// One mount.
#[derive(Debug, Clone)]
pub struct Mount {
    /// Where, in the container.
    pub destination: PathBuf,
    /// What.
    pub source: MountSource,
    /// What it allows.
    pub flags: MountFlags,
    /// What it and all below it allow, besides.
    pub flags_below: MountFlags,
    /// What others see of mounts below it, and whether that holds for those.
    pub propagation: Option<(Propagation, bool)>,
}

/// What is mounted.
#[derive(Debug, Clone)]
pub enum MountSource {
    /// A file or folder of the host.
    Bind {
        /// Its path there, absolute.
        path: PathBuf,
        /// With what is mounted below it.
        is_recursive: bool,
    },
    /// A new file system.
    New {
        /// Its type.
        kind: String,
        /// What it is said to be of.
        source: String,
        /// Its options: name and value, or a name alone.
        options: Vec<(String, String)>,
    },
}

/// A namespace: a new one, or one that is there.
#[derive(Debug, Clone)]
pub struct NamespaceOf {
    /// Of one kind.
    pub kind: Namespaces,
    /// The file that stands for it.
    pub path: Option<PathBuf>,
}

/// A range of users or groups, inside and outside of a user namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct IdRange {
    /// The first, inside.
    pub inside: u32,
    /// The first, outside.
    pub outside: u32,
    /// How many.
    pub count: u32,
}

/// A device to be made.
#[derive(Debug, Clone)]
pub struct Device {
    /// Where, in the container.
    pub path: PathBuf,
    /// What sort.
    pub kind: DeviceKind,
    /// Major and minor number.
    pub numbers: (u32, u32),
    /// Rights.
    pub mode: u32,
    /// Whose it is.
    pub owner: (u32, u32),
}

/// Which devices may be used; the last rule that fits decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceRule {
    /// Whether they may be.
    pub is_allowed: bool,
    /// `a`, `b` or `c`.
    pub kind: char,
    /// Major and minor number; all, if there is none.
    pub numbers: (Option<u32>, Option<u32>),
    /// Some of `rwm`.
    pub access: String,
}

/// A limit of the process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limit {
    /// Its name, as `RLIMIT_NOFILE`.
    pub name: String,
    /// What holds.
    pub soft: u64,
    /// How far it may be raised.
    pub hard: u64,
}

/// The program, and what it may do.
#[derive(Debug, Clone)]
pub struct ProcessOf {
    /// Program and arguments; the program is looked for in the `PATH` of the
    /// environment.
    pub arguments: Vec<OsString>,
    /// All of the environment.
    pub environment: Vec<(OsString, OsString)>,
    /// The working directory, absolute.
    pub directory: PathBuf,
    /// User and group.
    pub user: (u32, u32),
    /// Supplementary groups.
    pub groups: Vec<u32>,
    /// The mask of new files.
    pub file_mask: Option<u32>,
    /// The bounding set and the other sets; without, all are dropped.
    pub bounding: u64,
    /// The other sets of capabilities.
    pub capabilities: HeldCapabilities,
    /// Limits.
    pub limits: Vec<Limit>,
    /// Whether executing a file can give no rights.
    pub forbids_new_privileges: bool,
    /// How gladly the kernel ends it for want of memory.
    pub oom_score: Option<i32>,
    /// Which system calls it may make.
    pub filter: Option<SyscallFilter>,
}

impl Bundle {
    /// Those of a kind that are to be made.
    pub(super) fn new_namespaces(&self) -> Namespaces {
        let new = self.namespaces.iter().filter(|namespace| namespace.path.is_none());
        new.fold(Namespaces::NONE, |all, namespace| all.and(namespace.kind))
    }

    pub(super) fn has_own(&self, kind: Namespaces) -> bool {
        self.namespaces.iter().any(|namespace| namespace.kind == kind)
    }

    pub(super) fn has_new(&self, kind: Namespaces) -> bool {
        self.new_namespaces().bits() & kind.bits() != 0
    }

    /// What makes no sense, or would change the machine instead of the
    /// container.
    pub(super) fn check(&self) -> Result<(), Error> {
        let invalid = |what: String| Err(Error::Invalid(what));
        if !self.has_new(Namespaces::MOUNT) {
            return invalid("linux.namespaces: a container takes a new `mount` namespace, or its mounts would be the host's".to_owned());
        }
        if self.host_name.is_some() && !self.has_own(Namespaces::UTS) {
            return invalid("hostname: without a `uts` namespace it would name the host".to_owned());
        }
        if self.has_new(Namespaces::USER) == (self.users.is_empty() || self.groups.is_empty()) {
            return invalid(
                "linux.uidMappings, linux.gidMappings: a new `user` namespace takes both, and only it"
                    .to_owned(),
            );
        }
        if let Some((name, _)) = self.parameters.iter().find(|(name, _)| !self.owns_parameter(name)) {
            return invalid(format!("linux.sysctl: `{name}` belongs to no namespace of the container"));
        }
        let limits = self.process.iter().flat_map(|process| &process.limits);
        if let Some(limit) = limits.into_iter().find(|limit| !linux::has_resource_limit(&limit.name)) {
            return invalid(format!("process.rlimits: there is no `{}`", limit.name));
        }
        if let Some(process) = &self.process
            && (process.arguments.is_empty() || !process.directory.is_absolute())
        {
            return invalid("process: it takes `args`, and an absolute `cwd`".to_owned());
        }
        Ok(())
    }

    fn owns_parameter(&self, name: &str) -> bool {
        let of_ipc = ["kernel.msgmax", "kernel.msgmnb", "kernel.msgmni", "kernel.sem", "kernel.shmall"];
        let is_plain = name.split('.').all(|part| !part.is_empty() && !part.contains('/'));
        let kind = if name.starts_with("net.") {
            Namespaces::NET
        } else if of_ipc.contains(&name) || name.starts_with("kernel.shm") || name.starts_with("fs.mqueue.") {
            Namespaces::IPC
        } else if name == "kernel.domainname" {
            Namespaces::UTS
        } else {
            return false;
        };
        is_plain && self.has_own(kind)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn with(kinds: &[Namespaces]) -> Bundle {
        let namespaces = kinds.iter().map(|&kind| NamespaceOf { kind, path: None }).collect();
        Bundle { namespaces, ..Bundle::default() }
    }

    #[test]
    fn what_would_change_the_machine_is_refused() {
        let (mount, net, uts) = (Namespaces::MOUNT, Namespaces::NET, Namespaces::UTS);
        with(&[mount]).check().unwrap();
        let refused = |bundle: Bundle| bundle.check().unwrap_err().to_string();
        assert!(refused(with(&[net])).contains("`mount`"));
        let named = |kinds: &[Namespaces]| Bundle { host_name: Some("a".to_owned()), ..with(kinds) };
        assert!(refused(named(&[mount])).contains("hostname"));
        named(&[mount, uts]).check().unwrap();
        let tuned = |name: &str, kinds: &[Namespaces]| {
            let parameters = vec![(name.to_owned(), "1".to_owned())];
            Bundle { parameters, ..with(kinds) }
        };
        assert!(refused(tuned("net.ipv4.ip_forward", &[mount])).contains("net.ipv4.ip_forward"));
        tuned("net.ipv4.ip_forward", &[mount, net]).check().unwrap();
        for name in ["kernel.panic", "net./../kernel.panic", "vm.swappiness", "net..x"] {
            assert!(refused(tuned(name, &[mount, net, Namespaces::IPC])).contains("linux.sysctl"), "{name}");
        }
        assert!(refused(with(&[mount, Namespaces::USER])).contains("uidMappings"));
    }
}
