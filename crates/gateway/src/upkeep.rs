// SPDX-License-Identifier: Apache-2.0
//! What checks, backups and restores have to say, as JSON: by HTTP and on the
//! command line alike.

use serde_json::{Value, json};
use store::{Backed, Checked, Finding, Harm, Point, Restored};

/// One thing that is not as it should be.
pub fn finding(finding: &Finding) -> Value {
    let harm = match finding.harm {
        Harm::None => "none",
        Harm::Slight => "slight",
        Harm::Loss => "loss",
    };
    json!({
        "kind": finding.kind,
        "harm": harm,
        "place": finding.place,
        "object": finding.object.map(|object| object.to_string()),
        "what": finding.what,
    })
}

/// All of a check.
pub fn checked(checked: &Checked) -> Value {
    let Checked {
        objects,
        bytes,
        unnamed,
        labels,
        hurt_labels,
        relations,
        notes,
        slight,
        losses,
        restored,
        lost,
        mended,
        temporary,
        temporary_bytes,
        quarantined,
        quarantined_bytes,
        is_cut,
    } = *checked;
    json!({
        "clean": checked.is_clean(),
        "objects": objects,
        "bytes": bytes,
        "unnamed": unnamed,
        "labels": labels,
        "hurt_labels": hurt_labels,
        "relations": relations,
        "notes": notes,
        "slight": slight,
        "losses": losses,
        "restored": restored,
        "lost": lost,
        "mended": mended,
        "temporary": temporary,
        "temporary_bytes": temporary_bytes,
        "quarantined": quarantined,
        "quarantined_bytes": quarantined_bytes,
        "cut": is_cut,
    })
}

/// A point that was written.
pub fn backed(point: &str, backed: &Backed) -> Value {
    let first: Vec<String> = backed.first_missing.iter().map(ToString::to_string).collect();
    json!({
        "point": point,
        "labels": backed.labels,
        "new_objects": backed.objects,
        "new_bytes": backed.bytes,
        "missing": backed.missing,
        "damaged": backed.damaged,
        "first_missing": first,
    })
}

/// What came back of a point.
pub fn restored(point: &str, restored: &Restored) -> Value {
    let first: Vec<String> = restored.first_missing.iter().map(ToString::to_string).collect();
    json!({
        "point": point,
        "labels": restored.labels,
        "new_objects": restored.objects,
        "new_bytes": restored.bytes,
        "missing": restored.missing,
        "first_missing": first,
    })
}

/// A point that is there.
pub fn point(point: &Point) -> Value {
    json!({
        "point": point.name,
        "made_ms": point.made_ms,
        "labels": point.labels,
        "missing": point.missing,
        "files": point.files,
    })
}
