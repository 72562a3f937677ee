# SPDX-License-Identifier: Apache-2.0
"""Makes objects.json, the test vectors of ../objects.md.

The implementation is encoding.py beside it. Both need Python 3.10 and the
package blake3 from PyPI, and neither is needed by CI, which reads the JSON:

    python3 -m venv /tmp/vectors && /tmp/vectors/bin/pip install blake3==1.0.11
    /tmp/vectors/bin/python docs/spec/vectors/generate.py            # writes objects.json
    /tmp/vectors/bin/python docs/spec/vectors/generate.py --check    # compares with it

Conventions of the JSON: bytes are hexadecimal; integers that may exceed 2^53
are decimal strings; null is "no result".
"""

import json
import pathlib
import re
import sys

from encoding import (
    APPLICATION,
    BLOB_MAX,
    CODES,
    CONVERSIONS,
    DEFAULT_LIMITS,
    ENTRIES_MAX,
    IDENTIFICATION,
    MAGIC,
    SELECTION,
    SHALLOW,
    STRICT,
    application,
    assemble,
    blob,
    broken_rules,
    entries_of,
    failure,
    identification,
    kind,
    limits,
    literal,
    lowered,
    parse,
    read_application,
    read_bundle,
    read_failure,
    read_limits,
    read_selection,
    record,
    selection,
    shallow,
    size,
    strict,
    tag_of,
    text,
    tree,
    u64,
    uncurried,
)


def sample(length):
    """The content of all long blobs here: byte i is i modulo 251."""
    return bytes(i % 251 for i in range(length))


def made_up(seed):
    """A hash that is the hash of nothing in particular."""
    return bytes((seed + 7 * i) % 256 for i in range(24))


MODULE = bytes.fromhex("0061736d0100000001060160017f017f03020100070901056170706c7900000a0601040041030b")
BIG = blob(sample(1024))
PAIR = tree([u64(1), BIG])
EMPTY = tree([])
FAILED, FAILED_TREE = failure(b"trap", application(PAIR), blob(b"unreachable"))


def hexed(handle):
    return None if handle is None else handle.hex()


def example():
    procedure, argument = blob(MODULE), blob(b"hi")
    call = tree([blob(b""), procedure, argument])
    named = {
        "limits": blob(b""),
        "procedure": procedure,
        "argument": argument,
        "tree": call,
        "thunk": application(call),
        "encode": strict(application(call)),
    }
    steps = [{"name": name, "bytes": handle.hex(), "text": text(handle)} for name, handle in named.items()]
    return {"module": MODULE.hex(), "handles": steps}


def sample_handles():
    objects = {
        "empty literal": blob(b""),
        "literal of one zero byte": blob(b"\0"),
        "literal of text": blob(b"hello"),
        "u64 literal": u64(0x0102030405060708),
        "literal of 29 bytes": blob(sample(29)),
        "literal of 30 bytes": blob(b"\xff" * 30),
        "blob of 31 bytes": blob(sample(31)),
        "blob of 1024 bytes": BIG,
        "largest blob": assemble(made_up(1), BLOB_MAX),
        "blob whose hash is zero": assemble(bytes(24), 31),
        "empty tree": EMPTY,
        "tree of two entries": PAIR,
        "tree of three entries": tree([BIG, PAIR, EMPTY]),
        "largest tree": assemble(made_up(2), ENTRIES_MAX, tree=1),
    }
    samples = dict(objects)
    for name, handle in objects.items():
        if lowered(handle) != handle:
            samples[name + ", lowered"] = lowered(handle)
    samples["failure"] = FAILED
    for name in ("literal of text", "empty literal", "blob of 31 bytes", "tree of two entries", "largest tree"):
        for convert in (application, identification, selection):
            deferred = convert(objects[name])
            if deferred is None:
                continue
            samples[f"{convert.__name__} of {name}"] = deferred
            samples[f"strict {convert.__name__} of {name}"] = strict(deferred)
            samples[f"shallow {convert.__name__} of {name}"] = shallow(deferred)
    return samples


def handle_vectors():
    vectors = []
    for name, handle in sample_handles().items():
        assert not broken_rules(handle) and parse(text(handle)) == handle, name
        vector = {"name": name, "bytes": handle.hex(), "text": text(handle), "kind": kind(handle), "size": size(handle)}
        tag = tag_of(handle)
        vector["literal"] = handle[: tag.length].hex() if tag.literal else None
        vector.update({convert.__name__: hexed(convert(handle)) for convert in CONVERSIONS})
        vectors.append(vector)
    return vectors


def invalid_handle_vectors():
    def meta(handle, **fields):
        tag = tag_of(handle)
        for name, value in fields.items():
            setattr(tag, name, value)
        return handle[:30] + tag.bits().to_bytes(2, "little")

    hello, three = blob(b"hello"), tree([BIG, PAIR, EMPTY])
    cases = [
        ("all bytes zero: a blob of size 0 that is no literal", bytes(32)),
        ("all bytes ff", b"\xff" * 32),
        ("reserved bit 13", meta(BIG, reserved=1)),
        ("reserved bit 14", meta(PAIR, reserved=2)),
        ("reserved bit 15 of a literal", meta(hello, reserved=4)),
        ("encode 3 of a thunk", meta(application(PAIR), encode=3)),
        ("strict encode of a blob", meta(BIG, encode=STRICT)),
        ("shallow encode of a literal", meta(hello, encode=SHALLOW)),
        ("strict encode of a tree ref", meta(PAIR, encode=STRICT, ref=1)),
        ("shallow encode of a failure", meta(FAILED, encode=SHALLOW)),
        ("identification of a blob ref", meta(BIG, thunk=IDENTIFICATION, ref=1)),
        ("application of a tree ref", meta(PAIR, thunk=APPLICATION, ref=1)),
        ("strict selection of a tree ref", meta(PAIR, thunk=SELECTION, ref=1, encode=STRICT)),
        ("identification of a failure", meta(FAILED, thunk=IDENTIFICATION)),
        ("application of a failure", meta(FAILED, thunk=APPLICATION)),
        ("application of a blob", meta(BIG, thunk=APPLICATION)),
        ("selection of a literal", meta(hello, thunk=SELECTION)),
        ("shallow application of a blob", meta(BIG, thunk=APPLICATION, encode=SHALLOW)),
        ("failure that is a blob", meta(BIG, failure=1)),
        ("failure that is a ref", meta(three, failure=1, ref=1)),
        ("failure of two entries", meta(PAIR, failure=1)),
        ("failure of no entries", meta(EMPTY, failure=1)),
        ("literal that is a tree", meta(hello, tree=1)),
        ("literal that is a ref", meta(hello, ref=1)),
        ("literal of 31 bytes", meta(blob(sample(30)), length=31)),
        ("literal with a byte after its end", blob(b"hello")[:5] + b"\1" + blob(b"hello")[6:]),
        ("literal with a last byte after its end", blob(b"hello")[:29] + b"\1" + blob(b"hello")[30:]),
        ("identified literal with a byte after its end", meta(b"\1" + bytes(31), literal=1, thunk=IDENTIFICATION)),
        ("literal length of a blob", meta(BIG, length=1)),
        ("literal length of a tree", meta(PAIR, length=30)),
        ("literal without its bit", meta(hello, literal=0)),
        ("blob of 30 bytes that is no literal", assemble(made_up(3), 30)),
        ("blob of 0 bytes that is no literal", assemble(made_up(3), 0)),
        ("ref to a blob of 30 bytes", assemble(made_up(3), 30, ref=1)),
        ("identification of a blob of 30 bytes", assemble(made_up(3), 30, thunk=IDENTIFICATION)),
        ("tree of 2^26 + 1 entries", assemble(made_up(4), ENTRIES_MAX + 1, tree=1)),
        ("ref to a tree of 2^48 - 1 entries", assemble(made_up(4), BLOB_MAX, tree=1, ref=1)),
        ("application of 2^26 + 1 entries", assemble(made_up(4), ENTRIES_MAX + 1, tree=1, thunk=APPLICATION)),
    ]
    assert all(broken_rules(handle) for _, handle in cases)
    return [{"why": why, "rules": broken_rules(handle), "bytes": handle.hex()} for why, handle in cases]


def tag_sweep():
    """For some first 30 bytes, all tags that make them a handle."""
    bodies = [bytes(30), b"\xff" * 30, b"\1" + bytes(29), sample(30)]
    bodies += [made_up(5) + count.to_bytes(6, "little") for count in (3, 30, 31, ENTRIES_MAX, ENTRIES_MAX + 1)]
    return [
        {
            "body": body.hex(),
            "valid_tags": [tag for tag in range(2**16) if not broken_rules(body + tag.to_bytes(2, "little"))],
        }
        for body in bodies
    ]


def invalid_text_vectors():
    digest = made_up(6).hex()
    cases = [
        ("empty", ""),
        ("no kind", digest),
        ("kind alone", "lit"),
        ("unknown kind", f"blab-{digest}-31"),
        ("upper-case kind", f"Blob-{digest}-31"),
        ("upper-case digit in a hash", f"blob-{digest[:-1]}A-31"),
        ("upper-case digit in a literal", "lit-AB"),
        ("odd number of digits in a literal", "lit-abc"),
        ("literal of 31 bytes", "lit-" + "00" * 31),
        ("literal with a size", "lit-00-1"),
        ("not a hexadecimal digit", "lit-0g"),
        ("not ASCII in a literal", "lit-\u00e9"),
        ("not ASCII digits in a size", f"blob-{digest}-\u0663\u0661"),
        ("not ASCII in a hash", f"blob-{digest[:-2]}\u00e9-31"),
        ("white space before", f" blob-{digest}-31"),
        ("white space after", f"blob-{digest}-31\n"),
        ("no size", f"blob-{digest}"),
        ("empty size", f"blob-{digest}-"),
        ("empty hash", "blob--31"),
        ("hash of 47 digits", f"blob-{digest[:-1]}-31"),
        ("hash of 49 digits", f"blob-{digest}0-31"),
        ("size with a sign", f"blob-{digest}-+31"),
        ("negative size", f"tree-{digest}--1"),
        ("size with a leading zero", f"blob-{digest}-031"),
        ("size 00", f"tree-{digest}-00"),
        ("hexadecimal size", f"blob-{digest}-1f"),
        ("something after the size", f"blob-{digest}-31-0"),
        ("blob that should be a literal", f"blob-{digest}-30"),
        ("ref to a blob that should be a literal", f"blobref-{digest}-30"),
        ("identified blob that should be a literal", f"ident-blob-{digest}-0"),
        ("blob of 2^48 bytes", f"blob-{digest}-281474976710656"),
        ("blob of 2^48 + 31 bytes", f"blob-{digest}-281474976710687"),
        ("tree of 2^48 + 2 entries", f"tree-{digest}-281474976710658"),
        ("failure of 2^48 + 3 entries", f"failure-{digest}-281474976710659"),
        ("size of 2^64 + 31", f"blob-{digest}-18446744073709551647"),
        ("tree of 2^26 + 1 entries", f"tree-{digest}-67108865"),
        ("application of 2^26 + 1 entries", f"app-{digest}-67108865"),
        ("failure of 2 entries", f"failure-{digest}-2"),
        ("failure of 4 entries", f"failure-{digest}-4"),
        ("strict encode of a blob", f"strict-blob-{digest}-31"),
        ("strict encode of a literal", "strict-lit-00"),
        ("shallow encode of a tree ref", f"shallow-treeref-{digest}-2"),
        ("encode of an encode", f"strict-shallow-app-{digest}-2"),
        ("encode of the same encode", f"strict-strict-app-{digest}-2"),
        ("encode of nothing", "strict-"),
        ("identification of nothing", "ident-"),
        ("identification of a blob ref", f"ident-blobref-{digest}-31"),
        ("identification of a tree ref", f"ident-treeref-{digest}-2"),
        ("identification of a failure", f"ident-failure-{digest}-3"),
        ("identification of an application", f"ident-app-{digest}-2"),
        ("identification of an identification", "ident-ident-lit-00"),
        ("identification of an encode", f"ident-strict-app-{digest}-2"),
        ("two refs", f"treeref-treeref-{digest}-2"),
        ("underscore for a hyphen", f"blob_{digest}_31"),
    ]
    assert all(parse(string) is None for _, string in cases)
    return [{"why": why, "text": string} for why, string in cases]


def blob_vectors():
    lengths = (0, 1, 30, 31, 64, 1024, 1025, 100000)
    return {
        "formula": "byte i of the blob is i modulo 251",
        "cases": [{"length": length, "handle": blob(sample(length)).hex()} for length in lengths],
    }


def tree_vectors():
    lists = {
        "empty": [],
        "one literal": [blob(b"hello")],
        "one ref": [lowered(BIG)],
        "the object that the ref refers to": [BIG],
        "two entries": [u64(1), BIG],
        "two entries, swapped": [BIG, u64(1)],
        "four, one of them a tree": [EMPTY, PAIR, lowered(PAIR), blob(b"")],
        "33 entries of every kind": list(sample_handles().values())[:33],
        "a failure's": entries_of(FAILED_TREE),
    }
    valid = [
        {"name": name, "bytes": b"".join(entries).hex(), "entries": len(entries), "handle": tree(entries).hex()}
        for name, entries in lists.items()
    ]
    broken = [
        ("one byte", b"\0"),
        ("31 bytes", BIG[:31]),
        ("33 bytes", BIG + b"\0"),
        ("an entry that is no handle", bytes(32)),
        ("a second entry that is no handle", BIG + b"\xff" * 32),
    ]
    assert all(entries_of(raw) is None for _, raw in broken)
    return {"valid": valid, "invalid": [{"why": why, "bytes": raw.hex()} for why, raw in broken]}


def stated(fields):
    return {name: str(value) for name, value in fields.items()}


def limits_vectors():
    encodings = [
        blob(b""),
        limits(**DEFAULT_LIMITS),
        limits(0, 0, 0, 0),
        limits(1, 2, 3, 4),
        limits(2**48 - 1, 2**64 - 1, 2**48 - 1, 2**32 - 1),
        limits(0x060504030201, 0x0E0D0C0B0A090807, 0x14131211100F, 0x18171615),
    ]
    good = literal(limits(1, 2, 3, 4))
    broken = [
        ("24 bytes", blob(good[:24])),
        ("26 bytes", blob(good + b"\0")),
        ("one byte", blob(b"\1")),
        ("form 0", blob(b"\0" + good[1:])),
        ("form 2", blob(b"\2" + good[1:])),
        ("identified limits", identification(blob(good))),
        ("strictly identified empty literal", strict(identification(blob(b"")))),
        ("a blob that is no literal", BIG),
        ("a blob ref", lowered(BIG)),
        ("a tree", EMPTY),
        ("a failure", FAILED),
    ]
    assert all(read_limits(handle) is None for _, handle in broken)
    return {
        "valid": [{"handle": handle.hex(), **stated(read_limits(handle))} for handle in encodings],
        "invalid": [{"why": why, "handle": handle.hex()} for why, handle in broken],
    }


def application_vectors():
    module, default = blob(MODULE), blob(b"")
    curried, empty_curried = [module, u64(7)], []
    good = [
        [default, module],
        [default, module, blob(b"hi")],
        [limits(1, 2, 3, 4), blob(b"short"), lowered(BIG), application(PAIR), strict(application(PAIR))],
        [default, tree(curried), u64(8)],
        [default, EMPTY],
    ]
    broken = [
        ("empty", []),
        ("without a procedure", [default]),
        ("limits of form 2", [blob(b"\2" + bytes(24)), module]),
        ("limits that are no literal", [BIG, module]),
        ("a procedure that is a ref", [default, lowered(module)]),
        ("a curried procedure that is a ref", [default, lowered(tree(curried))]),
        ("a procedure that is a thunk", [default, identification(module)]),
        ("a procedure that is an encode", [default, strict(identification(module))]),
        ("a procedure that is a failure", [default, FAILED]),
        ("limits that are an encode", [strict(identification(default)), module]),
    ]
    assert all(read_application(b"".join(entries)) is None for _, entries in broken)
    valid = []
    for entries in good:
        found, procedure, arguments = read_application(b"".join(entries))
        valid.append(
            {
                "tree": b"".join(entries).hex(),
                "limits": stated(found),
                "procedure": procedure.hex(),
                "arguments": [argument.hex() for argument in arguments],
            }
        )
    twice = [tree(curried), u64(8), strict(application(PAIR))]
    uncurryings = []
    for inner in (curried, twice, [module], [lowered(BIG)], empty_curried):
        outer = b"".join([default, tree(inner), u64(9)])
        result = uncurried(outer, b"".join(inner))
        uncurryings.append(
            {
                "tree": outer.hex(),
                "procedure": b"".join(inner).hex(),
                "uncurried": None if result is None else b"".join(result).hex(),
            }
        )
    return {
        "valid": valid,
        "invalid": [{"why": why, "tree": b"".join(entries).hex()} for why, entries in broken],
        "curried": uncurryings,
    }


def selection_vectors():
    good = [
        [BIG, u64(0)],
        [PAIR, u64(1)],
        [blob(b"hello"), u64(2**64 - 1)],
        [strict(application(PAIR)), u64(5)],
        [lowered(PAIR), u64(0), u64(2)],
        [selection(PAIR), u64(3), u64(3)],
        [FAILED, u64(2), u64(1)],
    ]
    broken = [
        ("empty", []),
        ("without an index", [BIG]),
        ("four entries", [BIG, u64(0), u64(1), u64(2)]),
        ("an index of 7 bytes", [BIG, blob(bytes(7))]),
        ("an index of 9 bytes", [BIG, blob(bytes(9))]),
        ("an empty index", [BIG, blob(b"")]),
        ("an index that is a tree", [BIG, EMPTY]),
        ("an identified index", [BIG, identification(u64(0))]),
        ("a strictly identified index", [BIG, strict(identification(u64(0)))]),
        ("a begin of 4 bytes", [BIG, blob(bytes(4)), u64(1)]),
        ("an end of 4 bytes", [BIG, u64(0), blob(bytes(4))]),
        ("an end that is a ref", [BIG, u64(0), lowered(BIG)]),
    ]
    assert all(read_selection(b"".join(entries)) is None for _, entries in broken)
    valid = []
    for entries in good:
        target, indices = read_selection(b"".join(entries))
        names = ("index",) if len(indices) == 1 else ("begin", "end")
        part = dict(zip(names, map(str, indices)))
        valid.append({"tree": b"".join(entries).hex(), "target": target.hex(), **part})
    return {
        "valid": valid,
        "invalid": [{"why": why, "tree": b"".join(entries).hex()} for why, entries in broken],
    }


def failure_vectors():
    good = [(word.encode("ascii"), application(PAIR), blob(b"why")) for word in CODES]
    good += [
        (b"missing-data", BIG, blob(b"")),
        (b"guest", strict(selection(PAIR)), BIG),
        (b"guest", FAILED, blob(b"\xff\xfe")),
    ]
    bad = [
        ("empty", []),
        ("two entries", [blob(b"trap"), application(PAIR)]),
        ("four entries", [blob(b"trap"), application(PAIR), blob(b""), blob(b"")]),
        ("unknown code", [blob(b"oops"), application(PAIR), blob(b"")]),
        ("empty code", [blob(b""), application(PAIR), blob(b"")]),
        ("code in upper case", [blob(b"TRAP"), application(PAIR), blob(b"")]),
        ("code with a zero byte", [blob(b"trap\0"), application(PAIR), blob(b"")]),
        ("code that is not UTF-8", [blob(b"\xff"), application(PAIR), blob(b"")]),
        ("code that is no literal", [BIG, application(PAIR), blob(b"")]),
        ("identified code", [identification(blob(b"trap")), application(PAIR), blob(b"")]),
        ("strictly identified code", [strict(identification(blob(b"trap"))), application(PAIR), blob(b"")]),
        ("detail that is a tree", [blob(b"trap"), application(PAIR), EMPTY]),
        ("detail that is a ref", [blob(b"trap"), application(PAIR), lowered(BIG)]),
        ("detail that is identified", [blob(b"trap"), application(PAIR), identification(blob(b""))]),
    ]
    assert all(read_failure(b"".join(entries)) is None for _, entries in bad)
    valid = []
    for parts in good:
        handle, raw = failure(*parts)
        code, thing, detail = read_failure(raw)
        fields = {"code": code, "application": thing.hex(), "detail": detail.hex()}
        valid.append({"handle": handle.hex(), "tree": raw.hex(), **fields})
    return {
        "codes": [{"code": code, "deterministic": lasting} for code, lasting in CODES.items()],
        "valid": valid,
        "invalid": [{"why": why, "tree": b"".join(entries).hex()} for why, entries in bad],
    }


def bundle_vectors():
    module, call = MODULE, b"".join([blob(b""), blob(MODULE), blob(b"hi")])
    goal = strict(application(tree(entries_of(call))))
    good = {
        "no record": MAGIC,
        "the worked example": MAGIC + record(0, module) + record(1, call) + record(2, goal),
        "a tree before its entries": MAGIC + record(1, call) + record(0, module),
        "the same twice": MAGIC + record(0, module) + record(0, module),
        "an empty blob and an empty tree": MAGIC + record(0, b"") + record(1, b""),
        "a blob that is a literal": MAGIC + record(0, b"hi"),
        "a goal alone, of a value": MAGIC + record(2, lowered(BIG)),
    }
    bad = [
        ("empty", b""),
        ("half of the magic bytes", MAGIC[:2]),
        ("other magic bytes", b"SNB2" + record(0, module)),
        ("tag 3", MAGIC + record(3, b"")),
        ("tag 255", MAGIC + record(255, goal)),
        ("a tag alone", MAGIC + b"\0"),
        ("half of a length", MAGIC + record(0, b"")[:5]),
        ("a payload that is cut short", MAGIC + record(0, module)[:-1]),
        ("a length of 2^63", MAGIC + record(0, b"", length=2**63)),
        ("a length of 2^64 - 1", MAGIC + record(0, module, length=2**64 - 1)),
        ("a tree of 31 bytes", MAGIC + record(1, call[:31])),
        ("a tree with an entry that is no handle", MAGIC + record(1, bytes(32))),
        ("a goal of 31 bytes", MAGIC + record(2, goal[:31])),
        ("a goal of two handles", MAGIC + record(2, goal + goal)),
        ("a goal that is no handle", MAGIC + record(2, b"\xff" * 32)),
        ("a record after the goal", MAGIC + record(2, goal) + record(0, module)),
        ("two goals", MAGIC + record(2, goal) + record(2, goal)),
        ("a byte after the goal", MAGIC + record(2, goal) + b"\0"),
    ]
    assert all(read_bundle(raw) is None for _, raw in bad)
    make = {"blob": blob, "tree": lambda payload: tree(entries_of(payload)), "goal": bytes}
    valid = []
    for name, raw in good.items():
        records = [
            {"record": what, "payload": payload.hex(), "handle": make[what](payload).hex()}
            for what, payload in read_bundle(raw)
        ]
        valid.append({"name": name, "bytes": raw.hex(), "records": records})
    return {"valid": valid, "invalid": [{"why": why, "bytes": raw.hex()} for why, raw in bad]}


def main():
    vectors = {
        "about": "Test vectors of docs/spec/objects.md, made by generate.py. Bytes are hexadecimal, "
        "integers that may exceed 2^53 are decimal strings, null is no result.",
        "example": example(),
        "handles": handle_vectors(),
        "invalid_handles": invalid_handle_vectors(),
        "tag_sweep": tag_sweep(),
        "invalid_texts": invalid_text_vectors(),
        "blobs": blob_vectors(),
        "trees": tree_vectors(),
        "limits": limits_vectors(),
        "applications": application_vectors(),
        "selections": selection_vectors(),
        "failures": failure_vectors(),
        "bundles": bundle_vectors(),
    }
    written = json.dumps(vectors, indent=1, ensure_ascii=True) + "\n"
    # One line for each list of plain numbers, so that the sweep stays readable.
    numbers = re.compile(r"\[\s+((?:\d+,\s+)*\d+)\s+\]")
    written = numbers.sub(lambda match: "[" + re.sub(r"\s+", " ", match.group(1)) + "]", written)
    target = pathlib.Path(__file__).with_name("objects.json")
    if "--check" in sys.argv[1:]:
        sys.exit(0 if target.read_text("utf-8") == written else f"{target} is not what generate.py makes")
    target.write_text(written, "utf-8")
    print(f"{target}: {len(written)} bytes")


if __name__ == "__main__":
    main()
