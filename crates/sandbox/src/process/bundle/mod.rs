// SPDX-License-Identifier: Apache-2.0
//! Containers that somebody else described: OCI bundles.
//!
//! A [`Bundle`] says, in types, what a bundle's `config.json` says; reading
//! that file is the business of the command line. Unlike a
//! [`Container`](super::Container), which serves the node and ends with it,
//! such a container outlives the program that made it: all that is known of it
//! lies in a folder, and each operation is a process of its own.
//!
//! Invariants: what a bundle asks for holds when its program runs, or the
//! container is not made; every path of the bundle inside of its file tree is
//! looked up by the kernel after the old root is gone, so that no link in the
//! tree leads out of it; the program gets no descriptor but its three streams.

mod description;
mod enter;
mod life;
mod resources;
mod tree;

pub use description::{
    Bundle, Device, DeviceRule, IdRange, Limit, Mount, MountSource, NamespaceOf, ProcessOf, RootOf,
};
pub use life::{Birth, Status, create, kill, pid_file, remove, start, status};
pub use linux::{
    ArgumentTest, Comparison, DeviceKind, GroupSetting, HeldCapabilities, MountFlags, Namespaces,
    ProfileAnswer, ProfileRule, Propagation, SyscallFilter, call_number,
};
pub use resources::{BlockDevice, Resources};
