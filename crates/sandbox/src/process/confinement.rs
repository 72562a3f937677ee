// SPDX-License-Identifier: Apache-2.0
//! What a process in a container gives up before it runs anybody's code.

use std::io;
use std::path::Path;

use linux::{HeldCapabilities, Namespaces, ProcessLimits, SyscallFilter};

use super::bounds::Weakness;

/// All that holds for code in one container.
///
/// A process that comes from outside first writes `0` into each of the
/// container's `joins`, enters [`namespaces`](Self::namespaces) of its pid 1,
/// goes to `/` and closes what it does not need; then follows what is here,
/// in the order of the fields.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Confinement {
    /// To be entered by `setns`, besides those of process numbers, which are
    /// entered before the fork.
    pub namespaces: Namespaces,
    /// Whether the container has a user namespace, which is entered first.
    /// It forbids `setgroups`, and has dropped the groups.
    pub has_user_namespace: bool,
    /// Kept, as bits, also by what is executed: of a template in a realm. All
    /// others keep none.
    pub capabilities: u64,
    /// Landlock guards files. It would also keep whoever enters another
    /// container from all of its files.
    pub has_landlock: bool,
    /// What is executed has the same addresses each time.
    pub has_fixed_addresses: bool,
    /// To become, as real, effective and saved user.
    pub user: u32,
    /// To become, as real, effective and saved group.
    pub group: u32,
    /// Limits to be set.
    pub limits: ProcessLimits,
    /// Installed last, after no new privileges.
    pub filter: SyscallFilter,
    pub(super) weakness: Weakness,
}

impl Confinement {
    /// Gives up everything. The process is in its namespaces and groups.
    ///
    /// # Errors
    /// What was refused; the process must end then.
    pub(super) fn apply(&self) -> io::Result<()> {
        let weak = |weakness| self.weakness.has(weakness);
        if self.has_fixed_addresses {
            // Without it serves as well; its layout is another one.
            _ = linux::fix_addresses();
        }
        if self.capabilities != 0 {
            self.become_user_with_rights()?;
        } else if !weak(Weakness::ROOT) {
            linux::drop_bounding_set().map_err(step("drop the bounding set"))?;
            linux::become_user(self.user, self.group, !self.has_user_namespace)
                .map_err(step("become another user"))?;
            // A user namespace's owner keeps its capabilities otherwise.
            linux::keep_capabilities(0).map_err(step("drop capabilities"))?;
        }
        if !weak(Weakness::NO_LIMITS) {
            linux::set_process_limits(&self.limits).map_err(step("set limits"))?;
        }
        if !weak(Weakness::NEW_PRIVILEGES) {
            linux::forbid_new_privileges().map_err(step("forbid new privileges"))?;
            if self.has_landlock && !weak(Weakness::NO_LANDLOCK) {
                let read = [Path::new("/")];
                let write = [Path::new("/tmp"), Path::new("/dev"), Path::new("/proc")];
                linux::restrict_files(&read, &write).map_err(step("restrict files"))?;
            }
        }
        // What executes a program is traceable by its own kind again; that
        // `ptrace` is refused is what holds then.
        linux::forbid_dumping().map_err(step("forbid dumping"))?;
        if !weak(Weakness::ANY_CALL) {
            self.filter.install().map_err(step("install the filter of system calls"))?;
        }
        Ok(())
    }

    /// Becomes the user that keeps some capabilities, over its own user
    /// namespace.
    fn become_user_with_rights(&self) -> io::Result<()> {
        let kept = self.capabilities;
        linux::limit_bounding_set(kept).map_err(step("drop the bounding set"))?;
        let groups: Option<&[u32]> = if self.has_user_namespace { None } else { Some(&[]) };
        linux::become_user_with(self.user, self.group, groups).map_err(step("become another user"))?;
        let held = HeldCapabilities { effective: kept, permitted: kept, inheritable: kept, ambient: kept };
        linux::hold_capabilities(&held).map_err(step("keep capabilities"))
    }
}

fn step(what: &'static str) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("cannot {what}: {error}"))
}
