// SPDX-License-Identifier: Apache-2.0
//! The form of a point in time: a tree that names all that belongs to it.
//!
//! ```text
//! [ "sinew-backup-point 1", milliseconds since 1970, labels, files, missing, name ]
//! labels   [name, handle, name, handle, …], by name
//! files    [name, blob, name, blob, …]
//! missing  a blob: handles of what was not to be had, one after another
//! ```
//!
//! A backup may come from anywhere: whatever is read of one is checked.

use objects::{Handle, TreeBuilder};

use crate::disk::{Disk, Looked, look};
use crate::files::{Files, object_len};
use crate::index::Index;
use crate::labels::check_name;
use crate::{Error, LABELS_MAX, Object};

const MARK: &[u8] = b"sinew-backup-point 1";
const ENTRIES: u64 = 6;
/// What labels of points begin with, in the backup's index.
pub(super) const PREFIX: &str = "point/";
/// The longest name of a point: with its prefix it is a label.
const NAME_LEN_MAX: usize = crate::LABEL_LEN_MAX - PREFIX.len();
/// Files of the node's own that a point has at most, and how long each may be.
const FILES_MAX: usize = 64;
pub(super) const FILE_BYTES_MAX: u64 = 128 << 20;
/// Handles of what was missing.
const MISSING_BYTES_MAX: u64 = (super::copier::MISSING_MAX * Handle::LEN) as u64;

/// One point in time of a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Point {
    /// Its name.
    pub name: String,
    /// When it was made, in milliseconds since 1970.
    pub made_ms: u64,
    /// How many labels it has.
    pub labels: u64,
    /// Objects that its labels name and were not to be had when it was made.
    pub missing: u64,
    /// Files of the node's own, by name.
    pub files: Vec<String>,
}

/// The parts of a point, checked.
pub(super) struct Parts {
    pub(super) made_ms: u64,
    pub(super) labels: Object,
    pub(super) files: Vec<(String, Handle)>,
    pub(super) missing: Vec<Handle>,
}

/// Whether it can be a point's name.
pub(super) fn check_point(name: &str) -> Result<(), Error> {
    let refuse =
        |reason: String| Err(Error::Point { point: name.chars().take(NAME_LEN_MAX).collect(), reason });
    if name.len() > NAME_LEN_MAX {
        return refuse(format!("its name has over {NAME_LEN_MAX} characters"));
    }
    match check_name(name) {
        Err(Error::BadLabel { reason, .. }) => refuse(format!("it cannot have this name: {reason}")),
        other => other,
    }
}

/// The objects of a point, what is named before what names it, and its handle.
pub(super) fn objects(
    name: &str,
    made_ms: u64,
    labels: &[(String, Handle)],
    files: &[(String, Vec<u8>)],
    missing: &[Handle],
) -> (Vec<(Handle, Object)>, Handle) {
    let mut objects = Vec::new();
    let blob = |bytes: &[u8], objects: &mut Vec<(Handle, Object)>| {
        let handle = Handle::blob(bytes);
        if handle.literal_bytes().is_none() {
            objects.push((handle, Object::copy_of(bytes)));
        }
        handle
    };
    let tree = |builder: TreeBuilder, objects: &mut Vec<(Handle, Object)>| {
        let handle = builder.view().handle();
        objects.push((handle, Object::copy_of(builder.view().as_bytes())));
        handle
    };
    let labels =
        labels.iter().flat_map(|(name, handle)| [blob(name.as_bytes(), &mut objects), *handle]).collect();
    let labels = tree(labels, &mut objects);
    let files = files
        .iter()
        .flat_map(|(name, bytes)| [blob(name.as_bytes(), &mut objects), blob(bytes, &mut objects)]);
    let files = files.collect();
    let files = tree(files, &mut objects);
    let missing: Vec<u8> = missing.iter().flat_map(|handle| *handle.as_bytes()).collect();
    let missing = blob(&missing, &mut objects);
    let (mark, name) = (blob(MARK, &mut objects), blob(name.as_bytes(), &mut objects));
    let point = [mark, Handle::u64(made_ms), labels, files, missing, name].into_iter().collect();
    let point = tree(point, &mut objects);
    (objects, point)
}

/// Reads a point.
///
/// # Errors
/// [`Error::NoSuch`] if it is not there, [`Error::Point`] if it is none.
pub(super) fn read(disk: &Disk, name: &str) -> Result<Parts, Error> {
    check_point(name)?;
    let root = disk.index().label(&format!("{PREFIX}{name}"))?;
    let root = root.ok_or_else(|| Error::NoSuch {
        point: name.to_owned(),
        reason: "the backup has none of this name: `sinew backup DIR --list` tells which".to_owned(),
    })?;
    read_tree(disk, root).map_err(|error| match error {
        Error::Point { reason, .. } => Error::Point { point: name.to_owned(), reason },
        error => error,
    })
}

fn refuse(reason: &str) -> Error {
    Error::Point { point: String::new(), reason: reason.to_owned() }
}

pub(super) fn read_tree(disk: &Disk, root: Handle) -> Result<Parts, Error> {
    let point = tree(disk, root, ENTRIES)?;
    let entries: Vec<Handle> = point.as_tree().iter().collect();
    let &[mark, made, labels, files, missing, _] = entries.as_slice() else {
        return Err(refuse("its tree has not the entries of one"));
    };
    if mark.literal_bytes() != Some(MARK) {
        return Err(refuse("it is of another version, or none at all"));
    }
    let made_ms = made.literal_bytes().and_then(|bytes| Some(u64::from_le_bytes(*bytes.first_chunk()?)));
    let made_ms = made_ms.ok_or_else(|| refuse("it does not say when it was made"))?;
    let labels = tree(disk, labels, 2 * LABELS_MAX)?;
    let files = tree(disk, files, 2 * FILES_MAX as u64)?;
    let pairs: Vec<Handle> = files.as_tree().iter().collect();
    let mut files = Vec::new();
    for pair in pairs.as_chunks::<2>().0 {
        let [name, blob] = *pair;
        files.push((text(disk, name)?, blob));
    }
    let missing = handles(&blob(disk, missing, MISSING_BYTES_MAX)?);
    Ok(Parts { made_ms, labels, files, missing })
}

/// What was missing when a point was made; nothing if it cannot be read.
pub(super) fn missing(index: &Index, files: &Files, root: Handle) -> Result<Vec<Handle>, Error> {
    let sound = |handle: Handle, most: u64| match object_len(handle) <= most && handle == handle.plain_tree()
    {
        true => Ok(match look(index, files, handle)? {
            Looked::Sound(object) => Some(object),
            Looked::Absent | Looked::Damaged => None,
        }),
        false => Ok::<_, Error>(None),
    };
    let Some(point) = sound(root, ENTRIES * Handle::LEN as u64)?.filter(|_| root.names_tree()) else {
        return Ok(Vec::new());
    };
    let Some(missing) = point.as_tree().get(4).filter(|handle| handle.literal_bytes().is_none()) else {
        return Ok(Vec::new());
    };
    let Some(missing) = sound(missing, MISSING_BYTES_MAX)? else { return Ok(Vec::new()) };
    Ok(handles(&missing))
}

fn handles(bytes: &[u8]) -> Vec<Handle> {
    let handles = bytes.as_chunks::<{ Handle::LEN }>().0.iter();
    handles.filter_map(|bytes| Handle::from_bytes(*bytes).ok()).collect()
}

impl Parts {
    /// Its labels, checked one by one.
    pub(super) fn labels(&self, disk: &Disk) -> Result<Vec<(String, Handle)>, Error> {
        let entries: Vec<Handle> = self.labels.as_tree().iter().collect();
        let (pairs, rest) = entries.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(refuse("a label is without its handle"));
        }
        let label = |[name, handle]: &[Handle; 2]| {
            let name = text(disk, *name)?;
            check_name(&name)?;
            Ok((name, *handle))
        };
        pairs.iter().map(label).collect()
    }

    pub(super) fn info(&self, name: &str) -> Point {
        Point {
            name: name.to_owned(),
            made_ms: self.made_ms,
            labels: self.labels.as_tree().len() as u64 / 2,
            missing: self.missing.len() as u64,
            files: self.files.iter().map(|(name, _)| name.clone()).collect(),
        }
    }
}

/// A tree of at most so many entries.
fn tree(disk: &Disk, handle: Handle, most: u64) -> Result<Object, Error> {
    if handle != handle.plain_tree() || !handle.names_tree() || handle.size() > most {
        return Err(refuse("a part of it is no tree, or too long"));
    }
    object(disk, handle)
}

/// A blob of at most so many bytes.
pub(super) fn blob(disk: &Disk, handle: Handle, most: u64) -> Result<Object, Error> {
    if let Some(literal) = handle.literal_bytes() {
        return Ok(Object::copy_of(literal));
    }
    if handle != handle.plain_tree() || handle.names_tree() || object_len(handle) > most {
        return Err(refuse("a part of it is no blob, or too long"));
    }
    object(disk, handle)
}

fn text(disk: &Disk, handle: Handle) -> Result<String, Error> {
    let bytes = blob(disk, handle, crate::LABEL_LEN_MAX as u64)?;
    String::from_utf8(bytes.to_vec()).map_err(|_| refuse("a name in it is no text"))
}

fn object(disk: &Disk, handle: Handle) -> Result<Object, Error> {
    match disk.look(handle)? {
        Looked::Sound(object) => Ok(object),
        Looked::Absent => Err(refuse(&format!("{handle} is missing in the backup"))),
        Looked::Damaged => Err(refuse(&format!("{handle} is damaged in the backup"))),
    }
}
