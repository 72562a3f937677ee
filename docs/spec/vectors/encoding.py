# SPDX-License-Identifier: Apache-2.0
"""Handles and layouts in Python: what generate.py makes the vectors with.

Written from ../objects.md and not from the Rust crate, so that the two can
disagree. It is made to be compared with the text, section by section, and not
to be fast. A handle is 32 bytes here; readers return None for what is refused.
"""

import re

from blake3 import blake3

TREE_CONTEXT = "sinew 2026-11-21 tree"
BLOB_MAX = 2**48 - 1
ENTRIES_MAX = 2**26
PLAIN, APPLICATION, IDENTIFICATION, SELECTION = range(4)
STRICT, SHALLOW = 1, 2

# --- Section 2: the handle -------------------------------------------------


class Tag:
    """The 16 bits at the end of a handle, taken apart."""

    FIELDS = (
        ("tree", 0, 1),
        ("failure", 1, 1),
        ("ref", 2, 1),
        ("thunk", 3, 2),
        ("encode", 5, 2),
        ("literal", 7, 1),
        ("length", 8, 5),
        ("reserved", 13, 3),
    )

    def __init__(self, bits=0):
        for name, shift, width in self.FIELDS:
            setattr(self, name, (bits >> shift) & ((1 << width) - 1))

    def bits(self):
        return sum(getattr(self, name) << shift for name, shift, _ in self.FIELDS)


def tag_of(handle):
    return Tag(int.from_bytes(handle[30:32], "little"))


def size_field(handle):
    return int.from_bytes(handle[24:30], "little")


def broken_rules(handle):
    """Every rule of 2.1 that these 32 bytes break."""
    tag, size = tag_of(handle), size_field(handle)
    kept = {
        "H1": tag.reserved == 0,
        "H2": tag.encode != 3,
        "H3": not tag.encode or tag.thunk != PLAIN,
        "H4": not tag.thunk or not (tag.ref or tag.failure),
        "H5": tag.thunk not in (APPLICATION, SELECTION) or tag.tree,
        "H6": not tag.failure or (tag.tree and not tag.ref and size == 3),
        "H7": not tag.literal or not (tag.tree or tag.ref),
        "H8": not tag.literal or tag.length <= 30,
        "H9": not tag.literal or not any(handle[tag.length : 30]),
        "H10": tag.literal or tag.length == 0,
        "H11": tag.literal or tag.tree or size >= 31,
        "H12": not tag.tree or size <= ENTRIES_MAX,
    }
    return [rule for rule, holds in kept.items() if not holds]


def kind(handle):
    tag = tag_of(handle)
    if tag.encode:
        return {STRICT: "strict", SHALLOW: "shallow"}[tag.encode]
    if tag.thunk:
        return {1: "application", 2: "identification", 3: "selection"}[tag.thunk]
    if tag.failure:
        return "failure"
    return ("tree" if tag.tree else "blob") + (" ref" if tag.ref else "")


THUNKS = ("application", "identification", "selection")
ENCODES = ("strict", "shallow")
VALUES = ("blob", "tree", "blob ref", "tree ref", "failure")


def size(handle):
    tag = tag_of(handle)
    return tag.length if tag.literal else size_field(handle)


def literal(handle):
    """The bytes of a literal blob (kind blob), else None."""
    tag = tag_of(handle)
    return handle[: tag.length] if tag.literal and kind(handle) == "blob" else None


# --- Sections 3 and 4: blobs and trees -------------------------------------


def assemble(digest, count, **fields):
    tag = Tag()
    for name, value in fields.items():
        setattr(tag, name, value)
    return digest[:24] + count.to_bytes(6, "little") + tag.bits().to_bytes(2, "little")


def blob(content):
    if len(content) <= 30:
        tag = 0x80 + 256 * len(content)
        return content.ljust(30, b"\0") + tag.to_bytes(2, "little")
    return assemble(blake3(content).digest(), len(content))


def tree(entries):
    content = b"".join(entries)
    assert len(entries) <= ENTRIES_MAX and not any(broken_rules(entry) for entry in entries)
    return assemble(blake3(content, derive_key_context=TREE_CONTEXT).digest(), len(entries), tree=1)


def u64(value):
    return blob(value.to_bytes(8, "little"))


def entries_of(content):
    """The entries of a tree's bytes; None if they are no tree."""
    if len(content) % 32 or len(content) // 32 > ENTRIES_MAX:
        return None
    entries = [content[at : at + 32] for at in range(0, len(content), 32)]
    return None if any(broken_rules(entry) for entry in entries) else entries


# --- Section 5: conversions ------------------------------------------------


def retag(handle, **fields):
    tag = tag_of(handle)
    for name, value in fields.items():
        setattr(tag, name, value)
    result = handle[:30] + tag.bits().to_bytes(2, "little")
    assert not broken_rules(result), (handle.hex(), result.hex())
    return result


def lowered(handle):
    if kind(handle) not in VALUES:
        return None
    keep = tag_of(handle).literal or kind(handle) == "failure"
    return handle if keep else retag(handle, ref=1)


def lifted(handle):
    return retag(handle, ref=0) if kind(handle) in VALUES else None


def application(handle):
    return retag(handle, ref=0, thunk=APPLICATION) if kind(handle) in ("tree", "tree ref") else None


def selection(handle):
    return retag(handle, ref=0, thunk=SELECTION) if kind(handle) in ("tree", "tree ref") else None


def identification(handle):
    allowed = kind(handle) in ("blob", "blob ref", "tree", "tree ref")
    return retag(handle, ref=0, thunk=IDENTIFICATION) if allowed else None


def strict(handle):
    return retag(handle, encode=STRICT) if kind(handle) in THUNKS else None


def shallow(handle):
    return retag(handle, encode=SHALLOW) if kind(handle) in THUNKS else None


def thunk(handle):
    return retag(handle, encode=0) if kind(handle) in THUNKS + ENCODES else None


def definition(handle):
    return retag(handle, ref=0, thunk=0, encode=0)


def plain_tree(handle):
    return retag(handle, ref=0, thunk=0, encode=0, failure=0)


CONVERSIONS = (lowered, lifted, application, identification, selection, strict, shallow, thunk, definition, plain_tree)

# --- Section 6: the text form ----------------------------------------------


def text(handle):
    tag = tag_of(handle)
    prefix = {0: "", STRICT: "strict-", SHALLOW: "shallow-"}[tag.encode]
    tail = "-".join((handle[:24].hex(), str(size(handle))))
    if tag.thunk == APPLICATION:
        return prefix + "app-" + tail
    if tag.thunk == SELECTION:
        return prefix + "sel-" + tail
    if tag.thunk == IDENTIFICATION:
        prefix += "ident-"
    if tag.literal:
        return prefix + "lit-" + handle[: tag.length].hex()
    if tag.failure:
        return prefix + "failure-" + tail
    return prefix + ("tree" if tag.tree else "blob") + ("ref-" if tag.ref else "-") + tail


SIZE = r"(0|[1-9][0-9]*)"
HASH = r"([0-9a-f]{48})"
OBJECT = rf"(?:lit-((?:[0-9a-f]{{2}}){{0,30}})|(blob|tree)-{HASH}-{SIZE})"
GRAMMAR = re.compile(
    rf"(?:(strict|shallow)-)?(?:(app|sel)-{HASH}-{SIZE}|ident-{OBJECT})|{OBJECT}|(blobref|treeref|failure)-{HASH}-{SIZE}"
)


def parse(string):
    """The handle whose text form this is, or None."""
    match = GRAMMAR.fullmatch(string)
    if match is None:
        return None
    encode, style, s_hash, s_size, i_lit, i_kind, i_hash, i_size, lit, o_kind, o_hash, o_size, v_kind, v_hash, v_size = (
        match.groups()
    )
    digest = s_hash or i_hash or o_hash or v_hash
    count = int(s_size or i_size or o_size or v_size or "0")
    if count >= 2**48:
        return None
    tag = {"encode": {None: 0, "strict": STRICT, "shallow": SHALLOW}[encode]}
    if i_lit is not None or i_kind:
        tag["thunk"] = IDENTIFICATION
    elif style:
        tag["thunk"] = {"app": APPLICATION, "sel": SELECTION}[style]
    content = i_lit if i_lit is not None else lit
    if content is not None:
        handle = retag(blob(bytes.fromhex(content)), **tag)
    else:
        word = i_kind or o_kind or v_kind
        tag["tree"] = int(bool(style) or word in ("tree", "treeref", "failure"))
        tag["ref"] = int(word in ("blobref", "treeref"))
        tag["failure"] = int(word == "failure")
        handle = assemble(bytes.fromhex(digest), count, **tag)
    return None if broken_rules(handle) else handle


# --- Sections 7 to 10: layouts ---------------------------------------------

DEFAULT_LIMITS = {"memory_bytes": 64 << 20, "fuel": 0, "output_size_hint": 0, "fan_out_hint": 0}
CODES = {
    "trap": True,
    "fuel": True,
    "memory": False,
    "stack": False,
    "bad-handle": True,
    "bad-result": True,
    "bad-procedure": True,
    "bad-thunk": True,
    "out-of-range": True,
    "missing-data": False,
    "deadline": False,
    "cancelled": False,
    "resources": False,
    "guest": True,
}


def limits(memory_bytes, fuel, output_size_hint, fan_out_hint):
    parts = ((1, 1), (memory_bytes, 6), (fuel, 8), (output_size_hint, 6), (fan_out_hint, 4))
    return blob(b"".join(value.to_bytes(width, "little") for value, width in parts))


def read_limits(handle):
    content = literal(handle)
    if content == b"":
        return dict(DEFAULT_LIMITS)
    if content is None or len(content) != 25 or content[0] != 1:
        return None
    names, bounds = list(DEFAULT_LIMITS), (1, 7, 15, 21, 25)
    return {
        name: int.from_bytes(content[begin:end], "little")
        for name, begin, end in zip(names, bounds, bounds[1:])
    }


def read_application(content):
    entries = entries_of(content)
    if entries is None or len(entries) < 2 or kind(entries[1]) not in ("blob", "tree"):
        return None
    stated = read_limits(entries[0])
    return None if stated is None else (stated, entries[1], entries[2:])


def uncurried(content, procedure):
    entries, bound = entries_of(content), entries_of(procedure)
    return [entries[0], *bound, *entries[2:]] if bound else None


def read_selection(content):
    entries = entries_of(content)
    if entries is None or len(entries) not in (2, 3):
        return None
    indices = [literal(entry) for entry in entries[1:]]
    if any(index is None or len(index) != 8 for index in indices):
        return None
    return entries[0], [int.from_bytes(index, "little") for index in indices]


def failure(code, thing, detail):
    entries = [blob(code), thing, detail]
    return retag(tree(entries), failure=1), b"".join(entries)


def read_failure(content):
    entries = entries_of(content)
    if entries is None or len(entries) != 3 or kind(entries[2]) != "blob":
        return None
    code = literal(entries[0])
    if code is None or code not in [word.encode("ascii") for word in CODES]:
        return None
    return code.decode("ascii"), entries[1], entries[2]


# --- Section 11: bundles ---------------------------------------------------

MAGIC = bytes.fromhex("534e4231")


def record(tag, payload, length=None):
    return bytes([tag]) + (len(payload) if length is None else length).to_bytes(8, "little") + payload


def read_bundle(content):
    """The records as (name, payload) pairs, or None."""
    if content[:4] != MAGIC:
        return None
    records, at = [], 4
    while at < len(content):
        if at + 9 > len(content):
            return None
        tag, length = content[at], int.from_bytes(content[at + 1 : at + 9], "little")
        payload = content[at + 9 : at + 9 + length]
        at += 9 + length
        if len(payload) != length or length > BLOB_MAX:
            return None
        if tag == 0:
            records.append(("blob", payload))
        elif tag == 1:
            if entries_of(payload) is None:
                return None
            records.append(("tree", payload))
        elif tag == 2:
            if length != 32 or broken_rules(payload) or at != len(content):
                return None
            records.append(("goal", payload))
        else:
            return None
    return records
