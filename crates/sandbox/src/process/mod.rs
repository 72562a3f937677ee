// SPDX-License-Identifier: Apache-2.0
//! Functions in processes, each in a container of its own.

mod channel;
mod instance;
mod place;
mod python;
mod template;

pub use python::{Python, PythonOptions};
