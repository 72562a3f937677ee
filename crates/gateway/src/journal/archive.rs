// SPDX-License-Identifier: Apache-2.0
//! Records of requests on disk, for readers that ask for more than is in memory.
//!
//! A directory for each function, and in it *segments*: files of a document of JSON a line, the
//! oldest first, each named by the number of its first record. They are written by a thread of their
//! own, behind the requests, and not synced: they survive the node's end, whatever that is, but
//! maybe not a loss of power. Together they have a limit. What is over goes by segments, the oldest
//! of the function that has most: so none that prints much takes what others have.

use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::backwards::Backwards;
use super::{Record, Wanted, has_failed, is_of};
use crate::printed::Mark;

/// Records that wait to be written.
const WAITING_MAX: usize = 4096;
/// How long records are gathered once one was written.
const GATHERED: Duration = Duration::from_millis(50);
/// A segment's longest, and the part of the limit that it is at most.
const SEGMENT_MAX: u64 = 4 << 20;
const SEGMENTS_MIN: u64 = 32;
/// The longest line of a segment; what is longer is in none.
const LINE_MAX: usize = 4 << 20;
const SUFFIX: &str = ".jsonl";

/// Where records are kept.
#[derive(Debug, Clone)]
pub struct ArchiveOptions {
    /// Made when there is something to keep.
    pub directory: PathBuf,
    /// Bytes of all of them.
    pub bytes_max: u64,
}

/// Records on disk.
pub(crate) struct Archive {
    directory: PathBuf,
    writer: SyncSender<Work>,
}

enum Work {
    Write(Arc<Record>),
    /// Everything before it is written when this is dropped.
    Settle(SyncSender<()>),
}

impl Archive {
    /// Begins to keep records, in a thread that ends with this.
    ///
    /// # Errors
    /// If there can be no thread.
    pub(crate) fn begin(options: ArchiveOptions, currency: String) -> io::Result<Self> {
        let directory = options.directory.clone();
        let (writer, work) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new().name("sinew-journal".to_owned());
        thread.spawn(move || write_all(&work, Writer::new(options, currency)))?;
        Ok(Self { directory, writer })
    }

    /// Has a record written; does not wait. Where more come than can be written, some are not.
    pub(crate) fn keep(&self, record: Arc<Record>) {
        match self.writer.try_send(Work::Write(record)) {
            Ok(()) | Err(TrySendError::Disconnected(_)) => {}
            Err(TrySendError::Full(_)) => {
                tracing::debug!("a request is not written down: too many are at once");
            }
        }
    }

    /// Waits until all that was kept before is written, for a while at most.
    pub(crate) fn settle(&self, most: Duration) {
        let (done, settled) = sync_channel(0);
        if self.writer.send(Work::Settle(done)).is_ok() {
            // It is dropped, and nothing sent.
            _ = settled.recv_timeout(most);
        }
    }

    /// The newest records with a number below `before` that are wanted, the oldest first.
    pub(crate) fn find(&self, wanted: &Wanted, before: u64) -> io::Result<Vec<Value>> {
        find(&self.directory, wanted, before)
    }
}

fn write_all(work: &Receiver<Work>, mut writer: Writer) {
    let mut has_told = false;
    while let Ok(first) = work.recv() {
        let (mut records, mut settled) = (Vec::new(), Vec::new());
        for each in std::iter::once(first).chain(work.try_iter().take(WAITING_MAX)) {
            match each {
                Work::Write(record) => records.push(record),
                Work::Settle(done) => settled.push(done),
            }
        }
        let written = writer.write(&records);
        if let Err(error) = written.as_ref().map_err(|error| error.to_string())
            && !std::mem::replace(&mut has_told, true)
        {
            let directory = writer.directory.display();
            tracing::warn!(
                error,
                %directory,
                "logs of requests cannot be written, and are lost when the node ends; is there room on the disk?"
            );
        }
        has_told &= written.is_err();
        drop(settled);
        std::thread::sleep(GATHERED);
    }
}

/// A record as a line of a segment.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    record: &'a Record,
    log: &'a str,
    marks: &'a [Mark],
    #[serde(skip_serializing_if = "str::is_empty")]
    currency: &'a str,
}

/// Writes segments, and removes those that are over the limit.
struct Writer {
    directory: PathBuf,
    bytes_max: u64,
    currency: String,
    /// By function; not known before the first record comes.
    kept: Option<BTreeMap<String, Kept>>,
}

/// What there is of one function.
#[derive(Debug, Default)]
struct Kept {
    segments: VecDeque<Segment>,
    bytes: u64,
}

#[derive(Debug, Clone, Copy)]
struct Segment {
    /// The number of its first record, which is its name.
    first: u64,
    bytes: u64,
}

impl Writer {
    fn new(ArchiveOptions { directory, bytes_max }: ArchiveOptions, currency: String) -> Self {
        Self { directory, bytes_max, currency, kept: None }
    }

    /// Writes records, in their order.
    fn write(&mut self, records: &[Arc<Record>]) -> io::Result<()> {
        let mut by_function: BTreeMap<&str, (u64, Vec<u8>)> = BTreeMap::new();
        for record in records {
            let Some(function) = directory_of(&record.function) else { continue };
            let (_, lines) = by_function.entry(function).or_insert((record.sequence, Vec::new()));
            let before = lines.len();
            let (currency, log) = (self.currency.as_str(), record.log.text.as_str());
            let written = Written { record, log, marks: record.log.marks(), currency };
            serde_json::to_writer(&mut *lines, &written)?;
            lines.push(b'\n');
            if lines.len() - before > LINE_MAX {
                lines.truncate(before);
            }
        }
        if by_function.is_empty() {
            return Ok(());
        }
        let mut kept = match self.kept.take() {
            Some(kept) => kept,
            None => found(&self.directory)?,
        };
        let written = by_function.into_iter().try_for_each(|(function, (first, lines))| {
            let kept = kept.entry(function.to_owned()).or_default();
            append(&self.directory.join(function), kept, self.segment_max(), first, &lines)
        });
        self.make_room(&mut kept);
        self.kept = Some(kept);
        written
    }

    fn segment_max(&self) -> u64 {
        SEGMENT_MAX.min(self.bytes_max / SEGMENTS_MIN)
    }

    /// Removes segments until the rest is within the limit.
    fn make_room(&self, kept: &mut BTreeMap<String, Kept>) {
        while kept.values().map(|kept| kept.bytes).sum::<u64>() > self.bytes_max {
            let most = kept.iter_mut().max_by_key(|(_, kept)| kept.bytes);
            let Some((function, most)) = most else { return };
            let directory = self.directory.join(function);
            let Some(oldest) = most.segments.pop_front() else { return };
            most.bytes -= oldest.bytes;
            // If it is gone already, so much the better.
            _ = fs::remove_file(directory.join(file_name(oldest.first)));
            if most.segments.is_empty() {
                _ = fs::remove_dir(&directory);
                let function = function.clone();
                kept.remove(&function);
            }
        }
    }
}

/// Writes lines, the first of them that of record `first`, behind what there is.
fn append(directory: &Path, kept: &mut Kept, most: u64, first: u64, lines: &[u8]) -> io::Result<()> {
    let goes_on = kept.segments.back().filter(|last| last.bytes < most).copied();
    let segment = goes_on.unwrap_or(Segment { first, bytes: 0 });
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    let mut file = options.open(directory.join(file_name(segment.first)))?;
    // What was cut off, when the disk was full, is a line of its own.
    let is_cut = file.seek(SeekFrom::End(-1)).is_ok() && !ends_line(&mut file);
    let written = if is_cut { file.write_all(b"\n") } else { Ok(()) };
    let written = written.and_then(|()| file.write_all(lines));
    let bytes = file.metadata().map_or(segment.bytes, |known| known.len());
    if goes_on.is_some() {
        kept.segments.pop_back();
        kept.bytes -= segment.bytes;
    }
    kept.segments.push_back(Segment { bytes, ..segment });
    kept.bytes += bytes;
    written
}

fn ends_line(file: &mut File) -> bool {
    let mut last = [0];
    file.read_exact(&mut last).is_ok() && last == *b"\n"
}

/// What is there from before.
fn found(directory: &Path) -> io::Result<BTreeMap<String, Kept>> {
    let mut all = BTreeMap::new();
    for function in names_in(directory)? {
        let mut kept = Kept::default();
        for (first, path) in segments(&directory.join(&function))? {
            let bytes = path.metadata().map_or(0, |known| known.len());
            kept.segments.push_back(Segment { first, bytes });
            kept.bytes += bytes;
        }
        all.insert(function, kept);
    }
    Ok(all)
}

/// What is in a directory; nothing if there is none.
fn names_in(directory: &Path) -> io::Result<Vec<String>> {
    let entries = match fs::read_dir(directory) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map(|entry| Ok(entry?.file_name().into_string().ok()));
    names.filter_map(Result::transpose).collect()
}

/// The segments of a function, the oldest first.
fn segments(directory: &Path) -> io::Result<Vec<(u64, PathBuf)>> {
    let mut segments = Vec::new();
    for name in names_in(directory)? {
        if let Some(first) = name.strip_suffix(SUFFIX).and_then(|first| first.parse().ok()) {
            segments.push((first, directory.join(name)));
        }
    }
    segments.sort_unstable();
    Ok(segments)
}

fn file_name(first: u64) -> String {
    format!("{first:020}{SUFFIX}")
}

/// The function whose directory a record is in: of a step, its workflow.
fn directory_of(name: &str) -> Option<&str> {
    let function = name.split('.').next()?;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (!function.is_empty() && function.bytes().all(is_plain)).then_some(function)
}

/// A segment of which the newest records are read first.
struct Cursor {
    /// No record that it gives has a higher number.
    most: u64,
    /// The next one that is wanted, if that is known.
    next: Option<Value>,
    lines: Backwards,
}

impl PartialEq for Cursor {
    fn eq(&self, other: &Self) -> bool {
        self.most == other.most
    }
}
impl Eq for Cursor {}
impl PartialOrd for Cursor {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Cursor {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.most.cmp(&other.most)
    }
}

/// The newest records that are wanted and have a number below `before`, the oldest first.
fn find(directory: &Path, wanted: &Wanted, before: u64) -> io::Result<Vec<Value>> {
    let mut cursors = BinaryHeap::new();
    let own = wanted.function.as_deref().map(directory_of);
    for function in names_in(directory)? {
        if own.is_some_and(|own| own != Some(function.as_str())) {
            continue;
        }
        let mut most = before.saturating_sub(1);
        for (first, path) in segments(&directory.join(function))?.into_iter().rev() {
            if first <= most && most > wanted.after {
                match Backwards::open(path) {
                    Ok(lines) => cursors.push(Cursor { most, next: None, lines }),
                    // There was no room for it any more.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                    Err(error) => return Err(error),
                }
            }
            most = most.min(first.saturating_sub(1));
        }
    }
    let mut found = VecDeque::new();
    while let Some(mut cursor) = cursors.pop()
        && found.len() < wanted.limit
    {
        found.extend(cursor.next.take());
        if cursor.advance(wanted, before)? {
            cursors.push(cursor);
        }
    }
    // It has the oldest last.
    Ok(found.into_iter().rev().collect())
}

impl Cursor {
    /// Goes on to the next record that is wanted; whether there is one.
    fn advance(&mut self, wanted: &Wanted, before: u64) -> io::Result<bool> {
        let id = wanted.request_id.as_ref().map(|id| format!("\"request_id\":\"{id}\""));
        loop {
            let line = match self.lines.next(LINE_MAX) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                line => line?,
            };
            let Some(line) = line else { return Ok(false) };
            // What is none was cut off.
            let Some(sequence) = sequence_of(&line) else { continue };
            if sequence <= wanted.after {
                return Ok(false);
            }
            let Ok(text) = str::from_utf8(&line) else { continue };
            if sequence >= before || id.as_deref().is_some_and(|id| !text.contains(id)) {
                continue;
            }
            if let Ok(record) = serde_json::from_str::<Value>(text)
                && fits(&record, wanted)
            {
                (self.most, self.next) = (sequence, Some(record));
                return Ok(true);
            }
        }
    }
}

/// The number of a record, which is the first that its line says.
fn sequence_of(line: &[u8]) -> Option<u64> {
    let rest = line.strip_prefix(b"{\"sequence\":")?;
    let digits = rest.split(|byte| !byte.is_ascii_digit()).next()?;
    str::from_utf8(digits).ok()?.parse().ok()
}

fn fits(record: &Value, wanted: &Wanted) -> bool {
    let text = |name: &str| record[name].as_str().unwrap_or_default();
    let status = record["status"].as_u64().and_then(|status| u16::try_from(status).ok());
    let has_it = |wanted: &str| text("log").contains(wanted) || text("failure").contains(wanted);
    wanted.function.as_deref().is_none_or(|function| is_of(text("function"), function))
        && wanted.request_id.as_deref().is_none_or(|id| text("request_id") == id)
        && (!wanted.failed || has_failed(status.unwrap_or_default(), record["failure"].is_string()))
        && wanted.text.as_deref().is_none_or(has_it)
}

#[cfg(test)]
mod tests;
