// SPDX-License-Identifier: Apache-2.0
//! Secrets of functions: values that are in no object, and reach an instance
//! with its settings, through its channel.

use std::fmt::Debug;

/// Who knows the values.
pub trait SecretSource: Debug + Send + Sync {
    /// The value now; `None` if there is no such secret.
    fn secret(&self, name: &str) -> Option<String>;
}
