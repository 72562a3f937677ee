// SPDX-License-Identifier: Apache-2.0
//! What a container's init is told, as bytes: numbers and strings one after
//! the other, each string behind its length. Both sides are the same binary.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use linux::{Namespaces, ProcessLimits, SyscallFilter};

use super::bounds::Weakness;
use super::confinement::Confinement;
use super::container::Program;
use super::init::{ATTACH, RUN};
use super::rootfs::{BINDS_MAX, Bind, Rootfs};

/// Arguments of a program, at most; and as many variables of its environment.
pub(super) const STRINGS_MAX: usize = 1024;

/// Which users there are in a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Users {
    /// Those of the host.
    Host,
    /// One, in a namespace of its own: its number inside, and user and group
    /// outside.
    One { inside: u32, user: u32, group: u32 },
    /// Root, and the users of containers under the numbers that they have
    /// outside, in a namespace in which containers can be made: a *realm*.
    Realm { first: u32, count: u32 },
    /// One, as root may not be asked for others: the containers of such a realm have
    /// each a user namespace below, with the same one.
    RealmOfOne { inside: u32, user: u32, group: u32 },
    /// Those of a realm. Descriptors of its namespaces come with the plan.
    Within,
    /// In a realm of one, whose namespaces come with the plan: the same one, in a
    /// namespace below.
    OneWithin { inside: u32 },
}

impl Users {
    /// Whether it is a realm that is made.
    pub(super) fn is_realm(self) -> bool {
        matches!(self, Self::Realm { .. } | Self::RealmOfOne { .. })
    }

    /// Whether it is made in a realm.
    pub(super) fn is_within(self) -> bool {
        matches!(self, Self::Within | Self::OneWithin { .. })
    }

    /// Whether it has a user namespace with nobody else in it.
    pub(super) fn is_one(self) -> bool {
        matches!(self, Self::One { .. } | Self::RealmOfOne { .. } | Self::OneWithin { .. })
    }

    /// As four numbers, of which the first says which it is.
    fn numbers(self) -> [u32; 4] {
        match self {
            Self::Host => [0; 4],
            Self::One { inside, user, group } => [1, inside, user, group],
            Self::Realm { first, count } => [2, first, count, 0],
            Self::Within => [3, 0, 0, 0],
            Self::RealmOfOne { inside, user, group } => [4, inside, user, group],
            Self::OneWithin { inside } => [5, inside, 0, 0],
        }
    }

    fn of(numbers: [u32; 4]) -> Option<Self> {
        match numbers {
            [0, 0, 0, 0] => Some(Self::Host),
            [1, inside, user, group] => Some(Self::One { inside, user, group }),
            [2, first, count, 0] => Some(Self::Realm { first, count }),
            [3, 0, 0, 0] => Some(Self::Within),
            [4, inside, user, group] => Some(Self::RealmOfOne { inside, user, group }),
            [5, inside, 0, 0] => Some(Self::OneWithin { inside }),
            _ => None,
        }
    }
}

/// How to make the container.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) users: Users,
    pub(super) host_name: String,
    pub(super) rootfs: Rootfs,
    /// Of pid 1 and what it starts, however nice whoever prepares is.
    pub(super) niceness: i32,
    pub(super) weakness: Weakness,
}

/// What is taken from the shelf, and where it is put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Attachments(pub(super) Vec<(PathBuf, PathBuf)>);

impl Attachments {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer(vec![ATTACH]);
        writer.number(self.0.len() as u64);
        for (taken, place) in &self.0 {
            writer.string(taken).string(place);
        }
        writer.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes.strip_prefix(&[ATTACH])?);
        let mut all = Vec::new();
        for _ in 0..reader.count(BINDS_MAX)? {
            all.push((reader.string()?.into(), reader.string()?.into()));
        }
        reader.end()?;
        Some(Self(all))
    }
}

/// What to run in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Order {
    pub(super) program: Program,
    pub(super) confinement: Confinement,
}

#[derive(Default)]
struct Writer(Vec<u8>);

impl Writer {
    fn number(&mut self, number: u64) -> &mut Self {
        self.0.extend(number.to_le_bytes());
        self
    }

    fn option(&mut self, number: Option<u64>) -> &mut Self {
        self.number(u64::from(number.is_some())).number(number.unwrap_or(0))
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.number(bytes.len() as u64);
        self.0.extend(bytes);
        self
    }

    fn string(&mut self, string: impl AsRef<OsStr>) -> &mut Self {
        self.bytes(string.as_ref().as_bytes())
    }
}

/// Reads what a [`Writer`] wrote; `None` for anything else.
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn number(&mut self) -> Option<u64> {
        Some(u64::from_le_bytes(self.take(8)?.try_into().ok()?))
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    fn count(&mut self, most: usize) -> Option<usize> {
        usize::try_from(self.number()?).ok().filter(|count| *count <= most)
    }

    fn option(&mut self) -> Option<Option<u64>> {
        let (is_some, number) = (self.number()?, self.number()?);
        Some((is_some == 1).then_some(number))
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let len = usize::try_from(self.number()?).ok()?;
        self.take(len)
    }

    fn string(&mut self) -> Option<OsString> {
        Some(OsString::from_vec(self.bytes()?.to_vec()))
    }

    fn end(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}

impl Plan {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::default();
        for number in self.users.numbers() {
            writer.number(number.into());
        }
        writer.number(u64::from(self.niceness.cast_unsigned()));
        writer.number(self.weakness.0.into()).string(&self.host_name);
        writer.number(self.rootfs.tmp_bytes).number(self.rootfs.read_only.len() as u64);
        for bind in &self.rootfs.read_only {
            writer.string(&bind.host).string(&bind.guest);
        }
        writer.number(self.rootfs.links.len() as u64);
        for (link, target) in &self.rootfs.links {
            writer.string(link).string(target);
        }
        writer.number(self.rootfs.places.len() as u64);
        for place in &self.rootfs.places {
            writer.string(place);
        }
        writer.string(self.rootfs.shelf.as_deref().unwrap_or(Path::new("")));
        writer.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes);
        let users = [reader.small()?, reader.small()?, reader.small()?, reader.small()?];
        let users = Users::of(users)?;
        let niceness = reader.small()?.cast_signed();
        let weakness = Weakness(reader.small()?);
        let host_name = reader.string()?.into_string().ok()?;
        let tmp_bytes = reader.number()?;
        let mut read_only = Vec::new();
        for _ in 0..reader.count(BINDS_MAX)? {
            let (host, guest) = (reader.string()?, reader.string()?);
            read_only.push(Bind { host: host.into(), guest: guest.into() });
        }
        let mut links = Vec::new();
        for _ in 0..reader.count(BINDS_MAX)? {
            links.push((reader.string()?.into(), reader.string()?.into()));
        }
        let mut places = Vec::new();
        for _ in 0..reader.count(BINDS_MAX)? {
            places.push(reader.string()?.into());
        }
        let shelf = Some(PathBuf::from(reader.string()?)).filter(|path| path.is_absolute());
        reader.end()?;
        let rootfs = Rootfs { read_only, links, places, shelf, tmp_bytes };
        Some(Self { users, host_name, rootfs, niceness, weakness })
    }
}

impl Order {
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer(vec![RUN]);
        let Program { path, arguments, environment, directory } = &self.program;
        writer.string(path).string(directory).number(arguments.len() as u64);
        for argument in arguments {
            writer.string(argument);
        }
        writer.number(environment.len() as u64);
        for (name, value) in environment {
            writer.string(name).string(value);
        }
        let confined = &self.confinement;
        writer.number(confined.namespaces.bits().into());
        writer.number(confined.has_user_namespace.into()).number(confined.capabilities);
        writer.number(confined.has_landlock.into()).number(confined.has_fixed_addresses.into());
        writer.number(confined.user.into()).number(confined.group.into());
        let limits = &confined.limits;
        writer.option(limits.files).option(limits.processes).option(limits.file_bytes);
        writer.option(limits.core_bytes).option(limits.queue_bytes).option(limits.locked_bytes);
        writer.option(limits.data_bytes);
        writer.bytes(confined.filter.bytes()).number(confined.weakness.0.into());
        writer.0
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let mut reader = Reader(bytes.strip_prefix(&[RUN])?);
        let (path, directory) = (PathBuf::from(reader.string()?), PathBuf::from(reader.string()?));
        let mut arguments = Vec::new();
        for _ in 0..reader.count(STRINGS_MAX)? {
            arguments.push(reader.string()?);
        }
        let mut environment = Vec::new();
        for _ in 0..reader.count(STRINGS_MAX)? {
            environment.push((reader.string()?, reader.string()?));
        }
        let confinement = Confinement {
            namespaces: Namespaces::from_bits(reader.small()?),
            has_user_namespace: reader.number()? == 1,
            capabilities: reader.number()?,
            has_landlock: reader.number()? == 1,
            has_fixed_addresses: reader.number()? == 1,
            user: reader.small()?,
            group: reader.small()?,
            limits: ProcessLimits {
                files: reader.option()?,
                processes: reader.option()?,
                file_bytes: reader.option()?,
                core_bytes: reader.option()?,
                queue_bytes: reader.option()?,
                locked_bytes: reader.option()?,
                data_bytes: reader.option()?,
            },
            filter: SyscallFilter::from_bytes(reader.bytes()?).ok()?,
            weakness: Weakness(reader.small()?),
        };
        reader.end()?;
        Some(Self { program: Program { path, arguments, environment, directory }, confinement })
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use crate::process::filter::program_filter;

    fn plan() -> Plan {
        Plan {
            users: Users::One { inside: 1, user: 2, group: 3 },
            host_name: "sandbox".to_owned(),
            rootfs: Rootfs {
                read_only: vec![Bind::same("/usr"), Bind::same("/lib")],
                links: vec![("/bin".into(), "usr/bin".into())],
                places: vec!["/app".into()],
                shelf: Some("/var/layers".into()),
                tmp_bytes: 7,
            },
            niceness: -3,
            weakness: Weakness::ROOT,
        }
    }

    fn order() -> Order {
        let mut program = Program::new("/bin/sh");
        program.arguments = vec!["-c".into(), "true".into()];
        program.environment = vec![("A".into(), "b".into())];
        let confinement = Confinement {
            namespaces: Namespaces::NET,
            has_user_namespace: true,
            capabilities: 1 << 21,
            has_landlock: true,
            has_fixed_addresses: true,
            user: 4,
            group: 5,
            limits: ProcessLimits { files: Some(9), ..ProcessLimits::default() },
            filter: program_filter().unwrap(),
            weakness: Weakness::NONE,
        };
        Order { program, confinement }
    }

    #[test]
    fn what_is_written_is_read() {
        let realms =
            [Users::Realm { first: 4, count: 5 }, Users::RealmOfOne { inside: 1, user: 2, group: 3 }];
        let within = [Users::Within, Users::OneWithin { inside: 6 }];
        for users in [Users::Host, plan().users].into_iter().chain(realms).chain(within) {
            let plan = Plan { users, ..plan() };
            assert_eq!(Plan::decode(&plan.encode()), Some(plan));
        }
        assert_eq!(Order::decode(&order().encode()), Some(order()));
        let attachments = Attachments(vec![("a".into(), "/app".into()), ("b/c".into(), "/layers/0".into())]);
        assert_eq!(Attachments::decode(&attachments.encode()), Some(attachments));
        assert!(order().encode().len() < linux::MESSAGE_LEN_MAX);
    }

    #[test]
    fn what_is_cut_or_too_long_is_nothing() {
        let (plan, order) = (plan().encode(), order().encode());
        for len in 0..plan.len() {
            assert_eq!(Plan::decode(&plan[..len]), None, "{len}");
        }
        for len in (0..order.len()).step_by(7) {
            assert_eq!(Order::decode(&order[..len]), None, "{len}");
        }
        assert_eq!(Plan::decode(&[plan, vec![0]].concat()), None);
        assert_eq!(Order::decode(&[order, vec![0]].concat()), None);
    }
}
