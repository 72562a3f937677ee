// SPDX-License-Identifier: Apache-2.0
//! The commands, one file each: its arguments, and what it does.

pub(crate) mod alias;
pub(crate) mod bench;
pub(crate) mod cat;
pub(crate) mod completion;
pub(crate) mod delete;
pub(crate) mod deploy;
pub(crate) mod describe;
pub(crate) mod dev;
pub(crate) mod doctor;
pub(crate) mod eval;
pub(crate) mod explain;
pub(crate) mod get;
pub(crate) mod invoke;
pub(crate) mod label;
pub(crate) mod list;
pub(crate) mod logs;
pub(crate) mod ls;
pub(crate) mod new;
pub(crate) mod oci;
pub(crate) mod put;
pub(crate) mod rollback;
pub(crate) mod sandbox_init;
pub(crate) mod secret;
pub(crate) mod up;
pub(crate) mod version;
