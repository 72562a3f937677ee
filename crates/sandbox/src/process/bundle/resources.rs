// SPDX-License-Identifier: Apache-2.0
//! What a bundle's control group limits, and the files of both versions that
//! say so.

use linux::{ChosenGroup, GroupSetting};

use super::description::DeviceRule;
use crate::process::Error;

/// Limits of a control group; what is `None` is not limited. The units are
/// those of the OCI's runtime specification.
#[derive(Debug, Clone, Default)]
pub struct Resources {
    /// Bytes of memory; -1 is no limit.
    pub memory_limit: Option<i64>,
    /// Bytes that are kept for it under pressure.
    pub memory_reservation: Option<i64>,
    /// Bytes of memory and swap.
    pub memory_swap: Option<i64>,
    /// How gladly its memory is swapped, 0 to 100.
    pub swappiness: Option<u64>,
    /// Processes and threads; 0 and less is no limit.
    pub processes: Option<i64>,
    /// Weight among others, 2 to 262,144; 1,024 is usual.
    pub cpu_shares: Option<u64>,
    /// Microseconds in each period.
    pub cpu_quota: Option<i64>,
    /// Microseconds of a period.
    pub cpu_period: Option<u64>,
    /// Which processors, as `0-3,7`.
    pub cpus: Option<String>,
    /// Which memory nodes.
    pub memory_nodes: Option<String>,
    /// Weight among others that use disks, 10 to 1,000.
    pub disk_weight: Option<u16>,
    /// Bytes or operations a second of one disk.
    pub disks: Vec<BlockDevice>,
    /// Which devices may be used.
    pub devices: Vec<DeviceRule>,
    /// Files of version 2 by their names.
    pub unified: Vec<(String, String)>,
}

/// A limit of one disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BlockDevice {
    /// Which: `read_bps`, `write_bps`, `read_iops` or `write_iops`.
    pub what: &'static str,
    /// Major and minor number.
    pub numbers: (u32, u32),
    /// A second.
    pub rate: u64,
}

/// Devices that every container may use: null, zero, full, random, urandom,
/// tty, the terminals of its own. Making a node of a device opens nothing.
const ALWAYS: [&str; 10] = [
    "c 1:3 rwm",
    "c 1:5 rwm",
    "c 1:7 rwm",
    "c 1:8 rwm",
    "c 1:9 rwm",
    "c 5:0 rwm",
    "c 5:2 rwm",
    "c 136:* rwm",
    "c *:* m",
    "b *:* m",
];

impl Resources {
    /// The files to be written, in this order.
    ///
    /// # Errors
    /// [`Error::Invalid`] with the name of what this machine's control groups
    /// cannot limit.
    pub(super) fn settings(&self, group: &ChosenGroup) -> Result<Vec<GroupSetting>, Error> {
        let settings = match group.version() {
            1 => self.version_1()?,
            2 => self.version_2()?,
            _ if self.asks_for_nothing() => Vec::new(),
            _ => {
                return Err(Error::Invalid("linux.resources: this machine has no control groups".to_owned()));
            }
        };
        match settings.iter().find(|setting| !group.has(setting.controller)) {
            Some(lacking) => Err(Error::Invalid(format!(
                "linux.resources: this machine has no controller `{}`",
                lacking.controller
            ))),
            None => Ok(settings),
        }
    }

    fn asks_for_nothing(&self) -> bool {
        self.version_2().is_ok_and(|settings| settings.is_empty())
    }

    fn version_1(&self) -> Result<Vec<GroupSetting>, Error> {
        if let Some((name, _)) = self.unified.first() {
            return Err(Error::Invalid(format!("linux.resources.unified: `{name}` is of version 2 only")));
        }
        let mut all = Settings(Vec::new());
        for rule in &self.devices {
            let file = if rule.is_allowed { "devices.allow" } else { "devices.deny" };
            all.push("devices", file, rule.line());
        }
        if !self.devices.is_empty() {
            ALWAYS.into_iter().for_each(|line| all.push("devices", "devices.allow", line));
        }
        all.option("memory", "memory.limit_in_bytes", self.memory_limit);
        all.option("memory", "memory.soft_limit_in_bytes", self.memory_reservation);
        all.option("memory", "memory.memsw.limit_in_bytes", self.memory_swap);
        all.option("memory", "memory.swappiness", self.swappiness);
        all.option("pids", "pids.max", self.processes.map(most));
        all.option("cpu", "cpu.shares", self.cpu_shares);
        all.option("cpu", "cpu.cfs_period_us", self.cpu_period);
        all.option("cpu", "cpu.cfs_quota_us", self.cpu_quota);
        all.option("cpuset", "cpuset.cpus", self.cpus.clone());
        all.option("cpuset", "cpuset.mems", self.memory_nodes.clone());
        all.option("blkio", "blkio.weight", self.disk_weight);
        for disk in &self.disks {
            let (major, minor) = disk.numbers;
            let file = format!("blkio.throttle.{}_device", disk.what);
            all.push("blkio", &file, format!("{major}:{minor} {}", disk.rate));
        }
        Ok(all.0)
    }

    fn version_2(&self) -> Result<Vec<GroupSetting>, Error> {
        let refuse =
            |what: &str| Err(Error::Invalid(format!("linux.resources.{what} has no form in version 2")));
        if self.swappiness.is_some() {
            return refuse("memory.swappiness");
        }
        if !self.devices.is_empty() {
            return refuse("devices");
        }
        let mut all = Settings(Vec::new());
        all.option("memory", "memory.max", self.memory_limit.map(most));
        all.option("memory", "memory.low", self.memory_reservation.map(most));
        if let Some(both) = self.memory_swap {
            let swap = if both < 0 { both } else { (both - self.memory_limit.unwrap_or(0)).max(0) };
            all.push("memory", "memory.swap.max", if swap < 0 { "max".to_owned() } else { swap.to_string() });
        }
        all.option("pids", "pids.max", self.processes.map(most));
        // The ranges of both versions, laid over one another.
        let weight = |shares: u64| 1 + (shares.clamp(2, 262_144) - 2) * 9_999 / 262_142;
        all.option("cpu", "cpu.weight", self.cpu_shares.map(weight));
        if self.cpu_quota.is_some() || self.cpu_period.is_some() {
            let quota =
                self.cpu_quota.filter(|quota| *quota > 0).map_or("max".to_owned(), |quota| quota.to_string());
            all.push("cpu", "cpu.max", format!("{quota} {}", self.cpu_period.unwrap_or(100_000)));
        }
        all.option("cpuset", "cpuset.cpus", self.cpus.clone());
        all.option("cpuset", "cpuset.mems", self.memory_nodes.clone());
        all.option("io", "io.weight", self.disk_weight.map(|weight| format!("default {weight}")));
        for disk in &self.disks {
            let (major, minor) = disk.numbers;
            let name = match disk.what {
                "read_bps" => "rbps",
                "write_bps" => "wbps",
                "read_iops" => "riops",
                _ => "wiops",
            };
            all.push("io", "io.max", format!("{major}:{minor} {name}={}", disk.rate));
        }
        for (file, value) in &self.unified {
            let controllers = ["memory", "pids", "cpu", "cpuset", "io", "hugetlb", "rdma", "misc"];
            let known = file
                .split_once('.')
                .and_then(|(first, _)| controllers.into_iter().find(|name| *name == first));
            match known {
                Some(controller) if !file.contains('/') => all.push(controller, file, value),
                _ => {
                    return Err(Error::Invalid(format!(
                        "linux.resources.unified: `{file}` is no control file"
                    )));
                }
            }
        }
        Ok(all.0)
    }
}

struct Settings(Vec<GroupSetting>);

impl Settings {
    fn push(&mut self, controller: &'static str, file: &str, value: impl Into<String>) {
        self.0.push(GroupSetting { controller, file: file.to_owned(), value: value.into() });
    }

    fn option(&mut self, controller: &'static str, file: &str, value: Option<impl ToString>) {
        if let Some(value) = value {
            self.push(controller, file, value.to_string());
        }
    }
}

fn most(number: i64) -> String {
    if number <= 0 { "max".to_owned() } else { number.to_string() }
}

impl DeviceRule {
    fn line(&self) -> String {
        let number = |number: Option<u32>| number.map_or("*".to_owned(), |number| number.to_string());
        let (major, minor) = self.numbers;
        format!("{} {}:{} {}", self.kind, number(major), number(minor), self.access)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn lines(settings: Vec<GroupSetting>) -> Vec<String> {
        settings.into_iter().map(|setting| format!("{}={}", setting.file, setting.value)).collect()
    }

    #[test]
    fn both_versions_say_the_same() {
        let asked = Resources {
            memory_limit: Some(1 << 20),
            memory_swap: Some(3 << 20),
            processes: Some(-1),
            cpu_shares: Some(1024),
            cpu_quota: Some(5000),
            cpu_period: Some(10_000),
            disks: vec![BlockDevice { what: "write_bps", numbers: (8, 16), rate: 9 }],
            ..Resources::default()
        };
        assert_eq!(
            lines(asked.version_1().unwrap()),
            [
                "memory.limit_in_bytes=1048576",
                "memory.memsw.limit_in_bytes=3145728",
                "pids.max=max",
                "cpu.shares=1024",
                "cpu.cfs_period_us=10000",
                "cpu.cfs_quota_us=5000",
                "blkio.throttle.write_bps_device=8:16 9",
            ]
        );
        assert_eq!(
            lines(asked.version_2().unwrap()),
            [
                "memory.max=1048576",
                "memory.swap.max=2097152",
                "pids.max=max",
                "cpu.weight=39",
                "cpu.max=5000 10000",
                "io.max=8:16 wbps=9",
            ]
        );
    }

    #[test]
    fn what_one_version_cannot_do_is_refused_by_name() {
        let rule =
            DeviceRule { is_allowed: false, kind: 'a', numbers: (None, None), access: "rwm".to_owned() };
        let devices = Resources { devices: vec![rule], ..Resources::default() };
        assert_eq!(lines(devices.version_1().unwrap())[0], "devices.deny=a *:* rwm");
        assert!(devices.version_2().unwrap_err().to_string().contains("linux.resources.devices"));
        let unified = |file: &str| Resources {
            unified: vec![(file.to_owned(), "1".to_owned())],
            ..Resources::default()
        };
        assert!(unified("memory.high").version_1().is_err());
        assert_eq!(lines(unified("memory.high").version_2().unwrap()), ["memory.high=1"]);
        for file in ["../cgroup.procs", "memory.x/../../y", "cgroup.procs", "nothing"] {
            assert!(unified(file).version_2().is_err(), "{file}");
        }
    }
}
