// SPDX-License-Identifier: Apache-2.0
//! Where a node keeps its data, and therefore its socket, unless told otherwise.

use std::path::PathBuf;

/// Where `sinew dev` keeps the data of its node, beside the manifest.
pub(crate) const DEV_HOME: &str = ".sinew";

/// Whether the environment says where a node keeps its data.
pub(crate) fn is_home_named() -> bool {
    std::env::var_os("SINEW_HOME").is_some_and(|value| !value.is_empty())
}

/// `$SINEW_HOME`, else `$XDG_DATA_HOME/sinew`, else `~/.local/share/sinew`.
/// `None` if the environment names none of them.
pub(crate) fn default_home() -> Option<PathBuf> {
    let variable = |name| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    variable("SINEW_HOME")
        .or_else(|| Some(variable("XDG_DATA_HOME")?.join("sinew")))
        .or_else(|| Some(variable("HOME")?.join(".local/share/sinew")))
}
