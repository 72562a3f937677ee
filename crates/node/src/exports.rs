// SPDX-License-Identifier: Apache-2.0
//! Objects that people want to have in buckets: a blob as one object there, a directory
//! as many, whose keys are the paths of its files.

mod listing;

use std::collections::HashSet;
use std::sync::Arc;

use ::io::{Buckets, Upload, UploadError, UploadOptions, Uploaded, Uploads};
use axum::body::Bytes;
use gateway::{Export, ExportError, Exported, Exporting};
use objects::Handle;
use store::{Object, Store};
use tokio::task::JoinSet;

use listing::File;

use crate::recomputing;

/// Files that are being sent at once. How many requests there are is bounded by `io`.
const AT_ONCE: usize = 16;

/// Who writes them.
pub(crate) struct Exports {
    store: Arc<Store>,
    uploads: Uploads,
}

impl Exports {
    pub(crate) fn new(store: Arc<Store>, buckets: Buckets) -> Self {
        Self { store, uploads: Uploads::new(UploadOptions::default(), buckets) }
    }

    async fn write(&self, export: &Export) -> Result<Exported, ExportError> {
        let files = self.files(export).await?;
        let (mut exported, mut missing) = (Exported::default(), Vec::new());
        let mut files = files.into_iter();
        // Dropping it ends those that are on their way.
        let mut sending = JoinSet::new();
        loop {
            while sending.len() < AT_ONCE
                && let Some(file) = files.next()
            {
                let (store, uploads) = (Arc::clone(&self.store), self.uploads.clone());
                sending.spawn(send(store, uploads, file, export.content_type.clone()));
            }
            let Some(sent) = sending.join_next().await else { break };
            let sent = sent.map_err(|error| ExportError::Failed(error.to_string()))?;
            let (bytes, uploaded) = match sent {
                // The others are written all the same.
                Err(ExportError::Missing { missing: more, .. }) => {
                    missing.extend(more);
                    continue;
                }
                sent => sent?,
            };
            match uploaded {
                Uploaded::Written => {
                    exported.written += 1;
                    exported.written_bytes += bytes;
                }
                Uploaded::Known => {
                    exported.known += 1;
                    exported.known_bytes += bytes;
                }
            }
        }
        if missing.is_empty() { Ok(exported) } else { Err(ExportError::Missing { missing, exported }) }
    }

    /// What is to be written, and where to; an error if some of it cannot be.
    async fn files(&self, export: &Export) -> Result<Vec<File>, ExportError> {
        let (store, uploads) = (Arc::clone(&self.store), self.uploads.clone());
        let (handle, url) = (export.object, export.url.clone());
        let only: HashSet<Handle> = export.only.iter().copied().collect();
        let listed = tokio::task::spawn_blocking(move || {
            let files = match handle.names_tree() {
                true => listing::files(handle, &url, |handle| read(&store, handle))?,
                false => vec![File { url, handle }],
            };
            let files = listing::chosen(files, &only);
            for File { url, .. } in &files {
                uploads.check(url).map_err(|why| ExportError::Refused(format!("{url}: {why}")))?;
            }
            Ok(files)
        });
        listed.await.map_err(|error| ExportError::Failed(error.to_string()))?
    }
}

impl gateway::Exporter for Exports {
    fn export<'a>(&'a self, export: &'a Export) -> Exporting<'a> {
        Box::pin(self.write(export))
    }
}

fn read(store: &Store, handle: Handle) -> Result<Object, ExportError> {
    let found = recomputing::get(store, handle).map_err(ExportError::Store)?;
    found.ok_or_else(|| ExportError::missing(handle))
}

async fn send(
    store: Arc<Store>,
    uploads: Uploads,
    file: File,
    content_type: String,
) -> Result<(u64, Uploaded), ExportError> {
    let handle = file.handle;
    let body = match handle.literal_bytes() {
        Some(bytes) => Bytes::copy_from_slice(bytes),
        None => {
            let read = tokio::task::spawn_blocking(move || read(&store, handle)).await;
            let object = read.map_err(|error| ExportError::Failed(error.to_string()))??;
            Bytes::from_owner(object)
        }
    };
    let bytes = body.len() as u64;
    let upload = Upload { url: file.url, content_type, mark: handle.to_string(), body };
    let sent = uploads.send(&upload).await;
    let uploaded = sent.map_err(|error: UploadError| match error.is_lasting {
        true => ExportError::Refused(error.to_string()),
        false => ExportError::Failed(error.to_string()),
    })?;
    Ok((bytes, uploaded))
}
