// SPDX-License-Identifier: Apache-2.0
//! Where an instance is put: a container, or for measurements nowhere.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use super::container::{Process, Program};
use super::instance::Counted;
use super::options::Room;
use super::rootfs::Bind;

/// What a forked process does to itself before it runs a function.
#[derive(Debug, Clone, Default)]
pub(crate) struct Confinement {
    /// Namespaces to join but that of processes; 0 for none, also not that.
    pub(crate) setns_flags: u32,
    /// To become; 0 to stay who it is.
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Resource, soft and hard limit.
    pub(crate) rlimits: Vec<(u32, i64, i64)>,
    /// Whether Landlock guards files, where the kernel has it.
    pub(crate) landlock: bool,
    /// Whether one user namespace is entered, in which groups are nobody's to change.
    pub(crate) has_one_user: bool,
    /// An array of `struct sock_filter`.
    pub(crate) seccomp: Vec<u8>,
}

/// A place for one instance. Dropping it ends all that is in it.
pub(crate) trait Place: Counted + Send + Sync {
    /// Of its first process; `None` if it has no namespaces.
    fn pidfd(&self) -> Option<BorrowedFd<'_>>;
    /// Files of its namespaces, that of process numbers first, if it is entered by
    /// these and not by its first process.
    fn doors(&self) -> Arc<[OwnedFd]> {
        Arc::default()
    }
    /// Has what was forked into it join its control groups, if it did not itself.
    /// Nobody enters it any more.
    fn admit(&self) -> Result<(), String> {
        Ok(())
    }
    /// Files to write `0` into.
    fn joins(&self) -> Vec<BorrowedFd<'_>>;
    fn confinement(&self) -> Confinement;
    /// Has what will be in it see these folders. Only before anybody's code is
    /// in it.
    fn attach(&self, binds: &[Bind]) -> Result<(), String>;
    /// Listens on its own loopback.
    fn listen(&self, port: u16) -> Result<TcpListener, String>;
    /// Connects to what listens on its own loopback.
    fn connect(&self, port: u16) -> Result<TcpStream, String>;
    /// Starts a program in it, confined, with these standard streams.
    fn run(&self, program: &Program, stdio: [OwnedFd; 3]) -> Result<Process, String>;
    /// Sends a signal to the process that has this number in it, which is ended soon after and has all processor time until
    /// then; whether that is done.
    fn signal(&self, _number: u32, _signal: i32) -> bool {
        false
    }
    /// Ends all that is in it, at once.
    fn kill(&self);
    /// How often something in it was killed for want of memory.
    fn oom_kills(&self) -> u64;
    /// Memory charged to what is in it, if that is known.
    fn memory_bytes(&self) -> Option<u64>;
}

/// Makes places.
pub(crate) trait Places: Send + Sync {
    fn prepare(&self, room: Room) -> Result<Box<dyn Place>, String>;
    /// How many are prepared and in nobody's use.
    fn ready(&self) -> usize;
}

/// No place at all: the process stays where the template is, unconfined but
/// for its own channel's end. For measuring what a container adds.
#[cfg(any(test, feature = "contract"))]
pub(crate) struct Nowhere;

#[cfg(any(test, feature = "contract"))]
impl Counted for Nowhere {}

#[cfg(any(test, feature = "contract"))]
impl Place for Nowhere {
    fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn joins(&self) -> Vec<BorrowedFd<'_>> {
        Vec::new()
    }

    fn confinement(&self) -> Confinement {
        Confinement::default()
    }

    fn attach(&self, binds: &[Bind]) -> Result<(), String> {
        if binds.is_empty() { Ok(()) } else { Err("there is no container".to_owned()) }
    }

    fn listen(&self, _: u16) -> Result<TcpListener, String> {
        Err("there is no container, and no loopback of its own".to_owned())
    }

    fn connect(&self, _: u16) -> Result<TcpStream, String> {
        Err("there is no container, and no loopback of its own".to_owned())
    }

    fn run(&self, _: &Program, _: [OwnedFd; 3]) -> Result<Process, String> {
        Err("there is no container to start it in".to_owned())
    }

    /// The process ends by itself when its channel is shut.
    fn kill(&self) {}

    fn oom_kills(&self) -> u64 {
        0
    }

    fn memory_bytes(&self) -> Option<u64> {
        None
    }
}

#[cfg(any(test, feature = "contract"))]
impl Places for Nowhere {
    fn prepare(&self, _: Room) -> Result<Box<dyn Place>, String> {
        Ok(Box::new(Self))
    }

    fn ready(&self) -> usize {
        0
    }
}
