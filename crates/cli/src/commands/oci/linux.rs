// SPDX-License-Identifier: Apache-2.0
//! The section `linux` of a bundle's configuration, but for its filter.

use std::path::PathBuf;

use anyhow::{Context as _, bail};
use node::bundle::{
    BlockDevice, Bundle, Device, DeviceKind, DeviceRule, IdRange, NamespaceOf, Namespaces, Propagation,
    Resources,
};

use super::fields::Fields;

/// Fields that the specification knows and nothing here can honour.
const REFUSED: [&str; 6] =
    ["mountLabel", "intelRdt", "personality", "timeOffsets", "netDevices", "memoryPolicy"];

pub(super) fn read(mut fields: Fields, bundle: &mut Bundle) -> anyhow::Result<()> {
    for namespace in fields.objects("namespaces")? {
        let namespace = read_namespace(namespace)?;
        if bundle.namespaces.iter().any(|other| other.kind == namespace.kind) {
            bail!("linux.namespaces: a kind is there twice");
        }
        bundle.namespaces.push(namespace);
    }
    bundle.users = read_ranges(fields.objects("uidMappings")?)?;
    bundle.groups = read_ranges(fields.objects("gidMappings")?)?;
    for device in fields.objects("devices")? {
        bundle.devices.push(read_device(device)?);
    }
    if let Some(path) = fields.string("cgroupsPath")?.filter(|path| !path.is_empty()) {
        bundle.control_group = PathBuf::from(path);
    }
    let paths = |all: Vec<String>| all.into_iter().map(PathBuf::from).collect();
    bundle.masked = paths(fields.strings("maskedPaths")?);
    bundle.read_only = paths(fields.strings("readonlyPaths")?);
    bundle.parameters = fields.pairs("sysctl")?;
    bundle.root.propagation = match fields.string("rootfsPropagation")?.as_deref() {
        None | Some("") => None,
        Some("shared" | "rshared") => Some(Propagation::Shared),
        Some("slave" | "rslave") => Some(Propagation::Slave),
        Some("private" | "rprivate") => Some(Propagation::Private),
        Some("unbindable" | "runbindable") => Some(Propagation::Unbindable),
        Some(other) => bail!("linux.rootfsPropagation: there is no `{other}`"),
    };
    if let Some(resources) = fields.object("resources")? {
        bundle.resources = read_resources(resources)?;
    }
    fields.end(&REFUSED)
}

fn read_namespace(mut fields: Fields) -> anyhow::Result<NamespaceOf> {
    let kind = fields.string("type")?;
    let kind = match fields.required("type", kind)?.as_str() {
        "pid" => Namespaces::PID,
        "network" => Namespaces::NET,
        "mount" => Namespaces::MOUNT,
        "ipc" => Namespaces::IPC,
        "uts" => Namespaces::UTS,
        "user" => Namespaces::USER,
        "cgroup" => Namespaces::CGROUP,
        other => bail!("linux.namespaces: a namespace of type `{other}` cannot be honoured"),
    };
    let path = fields.string("path")?.filter(|path| !path.is_empty()).map(PathBuf::from);
    if path.as_ref().is_some_and(|path| !path.is_absolute()) {
        bail!("{} must be absolute", fields.path_of("path"));
    }
    fields.end(&[])?;
    Ok(NamespaceOf { kind, path })
}

fn read_ranges(all: Vec<Fields>) -> anyhow::Result<Vec<IdRange>> {
    let read = |mut fields: Fields| {
        let (inside, outside) = (fields.number("containerID")?, fields.number("hostID")?);
        let count = fields.number("size")?;
        let range = IdRange {
            inside: fields.required("containerID", inside)?,
            outside: fields.required("hostID", outside)?,
            count: fields.required("size", count)?,
        };
        fields.end(&[])?;
        Ok(range)
    };
    all.into_iter().map(read).collect()
}

fn read_device(mut fields: Fields) -> anyhow::Result<Device> {
    let (path, kind) = (fields.string("path")?, fields.string("type")?);
    let path = PathBuf::from(fields.required("path", path)?);
    let kind = match fields.required("type", kind)?.as_str() {
        "c" | "u" => DeviceKind::Character,
        "b" => DeviceKind::Block,
        "p" => DeviceKind::Pipe,
        other => bail!("linux.devices: there is no type `{other}`"),
    };
    if !path.is_absolute() {
        bail!("{} must be absolute", fields.path_of("path"));
    }
    let device = Device {
        path,
        kind,
        numbers: (fields.number("major")?.unwrap_or(0), fields.number("minor")?.unwrap_or(0)),
        mode: fields.number("fileMode")?.unwrap_or(0o666),
        owner: (fields.number("uid")?.unwrap_or(0), fields.number("gid")?.unwrap_or(0)),
    };
    fields.end(&[])?;
    Ok(device)
}

fn read_resources(mut fields: Fields) -> anyhow::Result<Resources> {
    let mut resources = Resources { unified: fields.pairs("unified")?, ..Resources::default() };
    if let Some(mut memory) = fields.object("memory")? {
        resources.memory_limit = memory.number("limit")?;
        resources.memory_reservation = memory.number("reservation")?;
        resources.memory_swap = memory.number("swap")?;
        resources.swappiness = memory.number("swappiness")?;
        memory.end(&["kernel", "kernelTCP", "disableOOMKiller", "useHierarchy", "checkBeforeUpdate"])?;
    }
    if let Some(mut pids) = fields.object("pids")? {
        resources.processes = pids.number("limit")?;
        pids.end(&[])?;
    }
    if let Some(mut cpu) = fields.object("cpu")? {
        resources.cpu_shares = cpu.number("shares")?;
        resources.cpu_quota = cpu.number("quota")?;
        resources.cpu_period = cpu.number("period")?;
        resources.cpus = cpu.string("cpus")?.filter(|cpus| !cpus.is_empty());
        resources.memory_nodes = cpu.string("mems")?.filter(|nodes| !nodes.is_empty());
        cpu.end(&["realtimeRuntime", "realtimePeriod", "burst", "idle"])?;
    }
    if let Some(disk) = fields.object("blockIO")? {
        read_disks(disk, &mut resources)?;
    }
    for rule in fields.objects("devices")? {
        resources.devices.push(read_device_rule(rule)?);
    }
    fields.end(&["hugepageLimits", "network", "rdma"])?;
    Ok(resources)
}

fn read_disks(mut fields: Fields, resources: &mut Resources) -> anyhow::Result<()> {
    resources.disk_weight = fields.number("weight")?;
    let lists = [
        ("throttleReadBpsDevice", "read_bps"),
        ("throttleWriteBpsDevice", "write_bps"),
        ("throttleReadIOPSDevice", "read_iops"),
        ("throttleWriteIOPSDevice", "write_iops"),
    ];
    for (name, what) in lists {
        for mut disk in fields.objects(name)? {
            let (major, minor, rate) = (disk.number("major")?, disk.number("minor")?, disk.number("rate")?);
            let numbers = (disk.required("major", major)?, disk.required("minor", minor)?);
            resources.disks.push(BlockDevice { what, numbers, rate: disk.required("rate", rate)? });
            disk.end(&[])?;
        }
    }
    fields.end(&["leafWeight", "weightDevice"])
}

fn read_device_rule(mut fields: Fields) -> anyhow::Result<DeviceRule> {
    let kind = fields.string("type")?.filter(|kind| !kind.is_empty()).unwrap_or_else(|| "a".to_owned());
    let access =
        fields.string("access")?.filter(|access| !access.is_empty()).unwrap_or_else(|| "rwm".to_owned());
    // A negative number is one way to say all.
    let number = |fields: &mut Fields, name| -> anyhow::Result<Option<u32>> {
        let number: Option<i64> = fields.number(name)?;
        number
            .filter(|number| *number >= 0)
            .map(|number| u32::try_from(number).context("too large"))
            .transpose()
    };
    let rule = DeviceRule {
        is_allowed: fields.boolean("allow")?,
        kind: match kind.as_str() {
            "a" => 'a',
            "b" => 'b',
            "c" => 'c',
            other => bail!("linux.resources.devices: there is no type `{other}`"),
        },
        numbers: (number(&mut fields, "major")?, number(&mut fields, "minor")?),
        access,
    };
    if !rule.access.chars().all(|letter| "rwm".contains(letter)) {
        bail!("linux.resources.devices: `{}` is no access", rule.access);
    }
    fields.end(&[])?;
    Ok(rule)
}
