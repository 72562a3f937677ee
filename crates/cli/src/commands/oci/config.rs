// SPDX-License-Identifier: Apache-2.0
//! `config.json` of a bundle, read into what the sandbox makes containers of.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use node::bundle::{
    Bundle, HeldCapabilities, Limit, Mount, MountFlags, MountSource, ProcessOf, Propagation, RootOf,
};
use serde_json::Value;

use super::fields::Fields;
use super::{linux, seccomp};

/// A bundle, and what of it only the command line needs.
pub(super) struct Config {
    pub(super) bundle: Bundle,
    pub(super) version: String,
    pub(super) annotations: Vec<(String, String)>,
}

/// Reads the configuration of the bundle in `folder`, for the container `id`.
pub(super) fn read(text: &str, folder: &Path, id: &str) -> anyhow::Result<Config> {
    let value: Value = serde_json::from_str(text).context("not JSON")?;
    let mut fields = Fields::new("", value)?;
    let version = fields.string("ociVersion")?;
    let version = fields.required("ociVersion", version)?;
    let mut numbers = version.split(['.', '-', '+']);
    if numbers.next() != Some("1") || numbers.next().is_none_or(|minor| minor.parse::<u32>().is_err()) {
        bail!("ociVersion is `{version}`; version 1 is understood");
    }
    let mut root = fields.object("root")?.context("root is missing")?;
    let path = root.string("path")?;
    let path = root.required("path", path)?;
    let mut bundle = Bundle {
        root: RootOf {
            path: folder.join(path).canonicalize().context("root.path")?,
            is_read_only: root.boolean("readonly")?,
            propagation: None,
        },
        host_name: fields.string("hostname")?,
        control_group: PathBuf::from(format!("sinew-oci-{id}")),
        ..Bundle::default()
    };
    root.end(&[])?;
    for mount in fields.objects("mounts")? {
        bundle.mounts.push(read_mount(mount, folder)?);
    }
    let mut filter = None;
    if let Some(mut linux) = fields.object("linux")? {
        filter = linux.object("seccomp")?.map(seccomp::read).transpose()?;
        linux::read(linux, &mut bundle)?;
    }
    let annotations = fields.pairs("annotations")?;
    if let Some(process) = fields.object("process")? {
        bundle.process = Some(ProcessOf { filter, ..read_process(process)? });
    }
    // Hooks run programs of the bundle's choice outside of the container.
    fields.end(&["hooks", "domainname", "solaris", "windows", "vm", "zos", "freebsd"])?;
    Ok(Config { bundle, version, annotations })
}

fn read_process(mut fields: Fields) -> anyhow::Result<ProcessOf> {
    let arguments = fields.strings("args")?.into_iter().map(OsString::from).collect();
    let mut environment = Vec::new();
    for variable in fields.strings("env")? {
        let Some((name, value)) = variable.split_once('=') else {
            bail!("process.env: `{variable}` has no `=`")
        };
        environment.push((name.into(), value.into()));
    }
    let directory = fields.string("cwd")?;
    let directory = PathBuf::from(fields.required("cwd", directory)?);
    let mut process = ProcessOf {
        arguments,
        environment,
        directory,
        user: (0, 0),
        groups: Vec::new(),
        file_mask: None,
        bounding: 0,
        capabilities: HeldCapabilities::default(),
        limits: Vec::new(),
        forbids_new_privileges: fields.boolean("noNewPrivileges")?,
        oom_score: fields.number("oomScoreAdj")?,
        filter: None,
    };
    if let Some(mut user) = fields.object("user")? {
        process.user = (user.number("uid")?.unwrap_or(0), user.number("gid")?.unwrap_or(0));
        process.file_mask = user.number("umask")?;
        process.groups = user.numbers("additionalGids")?;
        user.end(&["username"])?;
    }
    if let Some(mut sets) = fields.object("capabilities")? {
        process.bounding = capabilities(&mut sets, "bounding")?;
        process.capabilities = HeldCapabilities {
            effective: capabilities(&mut sets, "effective")?,
            permitted: capabilities(&mut sets, "permitted")?,
            inheritable: capabilities(&mut sets, "inheritable")?,
            ambient: capabilities(&mut sets, "ambient")?,
        };
        sets.end(&[])?;
    }
    for mut limit in fields.objects("rlimits")? {
        let (name, soft, hard) = (limit.string("type")?, limit.number("soft")?, limit.number("hard")?);
        let name = limit.required("type", name)?;
        if process.limits.iter().any(|other| other.name == name) {
            bail!("process.rlimits: {name} is there twice");
        }
        process.limits.push(Limit {
            name,
            soft: limit.required("soft", soft)?,
            hard: limit.required("hard", hard)?,
        });
        limit.end(&[])?;
    }
    if let Some(size) = fields.object("consoleSize")? {
        // Without a terminal it means nothing.
        drop(size);
    }
    fields.end(&[
        "terminal",
        "commandLine",
        "apparmorProfile",
        "selinuxLabel",
        "scheduler",
        "ioPriority",
        "execCPUAffinity",
    ])?;
    Ok(process)
}

/// Names in the kernel's order, without their `CAP_`.
const CAPABILITIES: [&str; 41] = [
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

fn capabilities(sets: &mut Fields, set: &str) -> anyhow::Result<u64> {
    let mut bits = 0;
    for name in sets.strings(set)? {
        let short = name.strip_prefix("CAP_").unwrap_or_default();
        match CAPABILITIES.iter().position(|known| *known == short) {
            Some(number) => bits |= 1 << number,
            None => bail!("process.capabilities.{set}: there is no capability `{name}`"),
        }
    }
    Ok(bits)
}

fn read_mount(mut fields: Fields, folder: &Path) -> anyhow::Result<Mount> {
    let destination = fields.string("destination")?;
    // A relative one is meant from the root.
    let destination = Path::new("/").join(fields.required("destination", destination)?);
    let (kind, source) = (fields.string("type")?, fields.string("source")?);
    let mut options = MountOptions::default();
    for option in fields.strings("options")? {
        options.add(&option);
    }
    let path = fields.path_of("options");
    fields.end(&["uidMappings", "gidMappings"])?;
    let kind = kind.unwrap_or_else(|| "bind".to_owned());
    let source = if options.is_bind || matches!(kind.as_str(), "bind" | "none") {
        // Of a file system in memory, and without a meaning for what is there.
        let of_memory = ["mode", "size", "uid", "gid", "nr_inodes", "nr_blocks"];
        if let Some((name, _)) = options.others.iter().find(|(name, _)| !of_memory.contains(&name.as_str())) {
            bail!("{path}: `{name}` means nothing for a bind");
        }
        let source = source.with_context(|| format!("{path}: a bind takes a source"))?;
        MountSource::Bind { path: folder.join(source), is_recursive: options.is_recursive }
    } else if kind == "cgroup" {
        bail!("{path}: a mount of control groups cannot be honoured; leave it out");
    } else {
        let source = source.unwrap_or_else(|| kind.clone());
        MountSource::New { kind, source, options: options.others }
    };
    Ok(Mount {
        destination,
        source,
        flags: options.flags,
        flags_below: options.flags_below,
        propagation: options.propagation,
    })
}

#[derive(Default)]
struct MountOptions {
    is_bind: bool,
    is_recursive: bool,
    flags: MountFlags,
    flags_below: MountFlags,
    propagation: Option<(Propagation, bool)>,
    /// Of the file system.
    others: Vec<(String, String)>,
}

/// Option, what it sets, what it clears.
const MOUNT_FLAGS: [(&str, u64, u64); 15] = [
    ("ro", MountFlags::READ_ONLY, 0),
    ("rw", 0, MountFlags::READ_ONLY),
    ("nosuid", MountFlags::NO_SETUID, 0),
    ("suid", 0, MountFlags::NO_SETUID),
    ("nodev", MountFlags::NO_DEVICES, 0),
    ("dev", 0, MountFlags::NO_DEVICES),
    ("noexec", MountFlags::NO_EXEC, 0),
    ("exec", 0, MountFlags::NO_EXEC),
    ("noatime", MountFlags::NO_ACCESS_TIMES, MountFlags::ACCESS_TIMES),
    ("strictatime", MountFlags::STRICT_ACCESS_TIMES, MountFlags::ACCESS_TIMES),
    ("relatime", 0, MountFlags::ACCESS_TIMES),
    ("nodiratime", MountFlags::NO_FOLDER_TIMES, 0),
    ("diratime", 0, MountFlags::NO_FOLDER_TIMES),
    ("nosymfollow", MountFlags::NO_LINKS, 0),
    ("symfollow", 0, MountFlags::NO_LINKS),
];

impl MountOptions {
    fn add(&mut self, option: &str) {
        let recursive = option.strip_prefix('r');
        let propagation = |name: &str| match name {
            "shared" => Some(Propagation::Shared),
            "slave" => Some(Propagation::Slave),
            "private" => Some(Propagation::Private),
            "unbindable" => Some(Propagation::Unbindable),
            _ => None,
        };
        let flag = |name: &str| MOUNT_FLAGS.iter().find(|(known, ..)| *known == name);
        if option == "bind" || option == "rbind" {
            (self.is_bind, self.is_recursive) = (true, option == "rbind");
        } else if let Some(found) = propagation(option) {
            self.propagation = Some((found, false));
        } else if let Some(found) = recursive.and_then(propagation) {
            self.propagation = Some((found, true));
        } else if let Some((_, set, clear)) = flag(option) {
            apply(&mut self.flags, *set, *clear);
        } else if let Some((_, set, clear)) = recursive.and_then(flag) {
            apply(&mut self.flags_below, *set, *clear);
        } else if option != "defaults" {
            let (name, value) = option.split_once('=').unwrap_or((option, ""));
            self.others.push((name.to_owned(), value.to_owned()));
        }
    }
}

fn apply(flags: &mut MountFlags, set: u64, clear: u64) {
    flags.set = flags.set & !clear | set;
    flags.clear = flags.clear & !set | clear;
    // The kernel takes a time of access only together with its whole mask.
    if set & MountFlags::ACCESS_TIMES != 0 {
        flags.clear |= MountFlags::ACCESS_TIMES;
    }
}

#[cfg(test)]
mod tests;
