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
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::Value;

use super::backwards::Backwards;
use super::{Record, Wanted, has_failed, is_none, is_of};
use crate::printed::Mark;

/// Records that wait to be written, and bytes of them.
const WAITING_MAX: usize = 4096;
const WAITING_BYTES_MAX: usize = 32 << 20;
/// Bytes of them that are written at once.
const BATCH_BYTES: usize = 4 << 20;
/// How long records are gathered once one was written.
const GATHERED: Duration = Duration::from_millis(50);
/// A segment's longest, and the part of the limit that it is at most. The last line of one is whole.
const SEGMENT_MAX: u64 = 4 << 20;
const SEGMENTS_MIN: u64 = 256;
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
    waiting_bytes: Arc<AtomicUsize>,
    /// Held by the one who searches: each search may read all that there is.
    searching: Mutex<()>,
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
        let waiting_bytes = Arc::<AtomicUsize>::default();
        let (waiting, thread) = (Arc::clone(&waiting_bytes), std::thread::Builder::new());
        let thread = thread.name("sinew-journal".to_owned());
        thread.spawn(move || write_all(&work, &waiting, Writer::new(options, currency)))?;
        Ok(Self { directory, writer, waiting_bytes, searching: Mutex::default() })
    }

    /// Has a record written; does not wait. Where more come than can be written, some are not.
    pub(crate) fn keep(&self, record: Arc<Record>) {
        let bytes = record.bytes();
        let is_full = self.waiting_bytes.fetch_add(bytes, Ordering::Relaxed) > WAITING_BYTES_MAX;
        if is_full || self.writer.try_send(Work::Write(record)).is_err() {
            self.waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
            tracing::debug!("a request is not written down: too many are at once");
        }
    }

    /// Waits until all that was kept before is written, for a while at most.
    pub(crate) fn settle(&self, most: Duration) {
        let (until, (done, settled)) = (Instant::now() + most, sync_channel(0));
        let mut work = Work::Settle(done);
        while let Err(TrySendError::Full(again)) = self.writer.try_send(work) {
            if Instant::now() >= until {
                return;
            }
            std::thread::sleep(GATHERED);
            work = again;
        }
        // It is dropped, and nothing sent.
        _ = settled.recv_timeout(until.saturating_duration_since(Instant::now()));
    }

    /// The newest records with a number below `before` that are wanted, the oldest first. One search at a time.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn find(&self, wanted: &Wanted, before: u64) -> io::Result<Vec<Value>> {
        let _alone = self.searching.lock().unwrap_or_else(PoisonError::into_inner);
        find(&self.directory, wanted, before)
    }

    /// The highest number that a record has, also one from a time when the clock was ahead; 0 if there is none.
    pub(crate) fn highest(&self) -> u64 {
        let last = |function: &String| {
            let (_, path) = segments(&self.directory.join(function)).ok()?.pop()?;
            let mut lines = Backwards::open(path).ok()?;
            while let Some(line) = lines.next(LINE_MAX).ok()? {
                if let Some(sequence) = sequence_of(&line) {
                    return Some(sequence);
                }
            }
            None
        };
        functions(&self.directory).unwrap_or_default().iter().filter_map(last).max().unwrap_or(0)
    }
}

fn write_all(work: &Receiver<Work>, waiting_bytes: &AtomicUsize, mut writer: Writer) {
    let mut has_told = false;
    while let Ok(first) = work.recv() {
        let (mut records, mut settled, mut bytes) = (Vec::new(), Vec::new(), 0);
        let mut next = Some(first);
        while let Some(each) = next {
            match each {
                Work::Write(record) => {
                    bytes += record.bytes();
                    records.push(record);
                }
                Work::Settle(done) => settled.push(done),
            }
            next = if bytes < BATCH_BYTES { work.try_recv().ok() } else { None };
        }
        let written = writer.write(&records);
        waiting_bytes.fetch_sub(bytes, Ordering::Relaxed);
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
        if bytes < BATCH_BYTES {
            std::thread::sleep(GATHERED);
        }
    }
}

/// A record as a line of a segment.
#[derive(Serialize)]
struct Written<'a> {
    #[serde(flatten)]
    record: &'a Record,
    log: &'a str,
    marks: &'a [Mark],
    #[serde(skip_serializing_if = "is_none")]
    lines_left_out: usize,
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
        let mut by_function: BTreeMap<&str, Vec<(u64, Vec<u8>)>> = BTreeMap::new();
        for record in records {
            let Some(function) = directory_of(&record.function) else { continue };
            let (currency, log) = (self.currency.as_str(), record.log.text.as_str());
            let (marks, lines_left_out) = (record.log.marks(), record.log.lines_left_out());
            let written = Written { record, log, marks, lines_left_out, currency };
            let mut line = serde_json::to_vec(&written)?;
            line.push(b'\n');
            if line.len() <= LINE_MAX {
                by_function.entry(function).or_default().push((record.sequence, line));
            }
        }
        if by_function.is_empty() {
            return Ok(());
        }
        let mut kept = match self.kept.take() {
            Some(kept) => kept,
            None => found(&self.directory)?,
        };
        let mut written = Ok(());
        for (function, lines) in by_function {
            let mut rest = lines.as_slice();
            while !rest.is_empty() {
                let kept_of_it = kept.entry(function.to_owned()).or_default();
                let appended =
                    append(&self.directory.join(function), kept_of_it, self.segment_max(), &mut rest);
                self.make_room(&mut kept);
                if let Err(error) = appended {
                    // What one function cannot be kept of is no reason to lose the others'.
                    written = Err(error);
                    break;
                }
            }
        }
        self.kept = Some(kept);
        written
    }

    fn segment_max(&self) -> u64 {
        SEGMENT_MAX.min(self.bytes_max / SEGMENTS_MIN)
    }

    /// Removes segments until the rest is within the limit: the oldest of the function that has most, and the only one
    /// of a function only where none has two.
    fn make_room(&self, kept: &mut BTreeMap<String, Kept>) {
        while kept.values().map(|kept| kept.bytes).sum::<u64>() > self.bytes_max {
            let most = kept.iter_mut().max_by_key(|(_, kept)| (kept.segments.len() > 1, kept.bytes));
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

/// Writes lines behind what there is, as many as the segment has room for, or the next one; takes them off `lines`.
fn append(directory: &Path, kept: &mut Kept, most: u64, lines: &mut &[(u64, Vec<u8>)]) -> io::Result<()> {
    let Some((first, _)) = lines.first() else { return Ok(()) };
    let goes_on = kept.segments.back().filter(|last| last.bytes < most).copied();
    let segment = goes_on.unwrap_or(Segment { first: *first, bytes: 0 });
    let (mut count, mut bytes) = (0, segment.bytes);
    while count < lines.len() && bytes < most {
        bytes += lines[count].1.len() as u64;
        count += 1;
    }
    let (now, later) = lines.split_at(count.max(1));
    DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    let mut file = options.open(directory.join(file_name(segment.first)))?;
    // What was cut off, when the disk was full, is a line of its own.
    let is_cut = file.seek(SeekFrom::End(-1)).is_ok() && !ends_line(&mut file);
    let written = if is_cut { file.write_all(b"\n") } else { Ok(()) };
    let all: Vec<u8> = now.iter().flat_map(|(_, line)| line).copied().collect();
    let written = written.and_then(|()| file.write_all(&all));
    let bytes = file.metadata().map_or(segment.bytes, |known| known.len());
    if goes_on.is_some() {
        kept.segments.pop_back();
        kept.bytes -= segment.bytes;
    }
    kept.segments.push_back(Segment { bytes, ..segment });
    kept.bytes += bytes;
    *lines = later;
    written
}

fn ends_line(file: &mut File) -> bool {
    let mut last = [0];
    file.read_exact(&mut last).is_ok() && last == *b"\n"
}

/// What is there from before.
fn found(directory: &Path) -> io::Result<BTreeMap<String, Kept>> {
    let mut all = BTreeMap::new();
    for function in functions(directory)? {
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

/// Functions of which there is something. What else somebody has put there is nobody's.
fn functions(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = names_in(directory)?;
    names.retain(|name| directory_of(name) == Some(name.as_str()) && directory.join(name).is_dir());
    Ok(names)
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
    let mut after = wanted.after;
    for function in functions(directory)? {
        if own.is_some_and(|own| own != Some(function.as_str())) {
            continue;
        }
        let mut most = before.saturating_sub(1);
        for (first, path) in segments(&directory.join(function))?.into_iter().rev() {
            if first <= most && most > after {
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
        if let Some(record) = cursor.next.take() {
            if wanted.request_id.is_some() && record["parent"].is_null() {
                // It is the request itself: nothing of it was kept before it began.
                after = after.max(record["begun_us"].as_u64().unwrap_or(0).saturating_sub(1));
            }
            found.push_back(record);
        }
        if cursor.most > after && cursor.advance(wanted, after, before)? {
            cursors.push(cursor);
        }
    }
    // It has the oldest last.
    Ok(found.into_iter().rev().collect())
}

impl Cursor {
    /// Goes on to the next record that is wanted; whether there is one.
    fn advance(&mut self, wanted: &Wanted, after: u64, before: u64) -> io::Result<bool> {
        let id = wanted.request_id.as_ref().map(|id| format!("\"request_id\":\"{id}\""));
        loop {
            let line = match self.lines.next(LINE_MAX) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
                line => line?,
            };
            let Some(line) = line else { return Ok(false) };
            // What is none was cut off.
            let Some(sequence) = sequence_of(&line) else { continue };
            if sequence <= after {
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
