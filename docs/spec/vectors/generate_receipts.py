# SPDX-License-Identifier: Apache-2.0
"""Makes receipts.json, the test vectors of ../receipts.md.

Written from the text and not from the Rust crate. Needs the packages blake3 and
cryptography from PyPI; CI needs neither, it reads the JSON:

    python3 -m venv /tmp/vectors && /tmp/vectors/bin/pip install blake3==1.0.11 cryptography
    /tmp/vectors/bin/python docs/spec/vectors/generate_receipts.py          # writes receipts.json
    /tmp/vectors/bin/python docs/spec/vectors/generate_receipts.py --check  # compares with it
"""

import json
import pathlib
import struct
import sys

from blake3 import blake3
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from encoding import application, blob, limits, strict, tree, u64

MAGIC = b"sinew receipt 1\n"
CONTEXT = "sinew 2026 receipt steps"
SEED = bytes(range(32))
RAN, COUNTED = 1, 2


def numbers(*values):
    return struct.pack(f"<{len(values)}Q", *values)


def record(thunk, result, inputs, reserved, fuel, flags):
    return thunk + result + numbers(inputs, reserved, fuel, flags)


def sums(records, flag):
    """Inputs, reservation, fuel, uncounted of the records with this flag."""
    total = [0, 0, 0, 0]
    for one in records:
        *cost, flags = struct.unpack("<4Q", one[64:96])
        if flags & flag == flag:
            total = [a + b for a, b in zip(total, [*cost, 0 if flags & COUNTED else 1])]
    return total


def statement(goal, result, public, records, *, issued, flags=0, nanos=0, by=0, price=2**64 - 1, ppm=10**6, currency=b""):
    ran = sum(one[88] & RAN for one in records)
    digest = blake3(b"".join(records), derive_key_context=CONTEXT).digest()
    head = MAGIC + goal + result + public + digest
    body = numbers(issued, flags, len(records), ran, *sums(records, 0), *sums(records, RAN), nanos, by, price, ppm)
    return head + body + currency.ljust(16, b"\0")


def call(number, fuel):
    return application(tree([limits(1 << 20, fuel, 0, 0), blob(b"x" * 100), u64(number)]))


def receipts():
    key = Ed25519PrivateKey.from_private_bytes(SEED)
    public = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    records = sorted([
        record(call(1, 500), u64(2), 100, 1 << 20, 321, RAN | COUNTED),
        record(call(2, 500), u64(3), 100, 1 << 20, 322, COUNTED),
        record(call(3, 0), u64(4), 100, 1 << 20, 0, RAN),
    ])
    whole = statement(
        strict(call(1, 500)), u64(2), public, records,
        issued=1_795_451_045_678, nanos=1500, by=60_000, price=7_000_000, ppm=750_000, currency=b"EUR",
    )
    nothing = statement(u64(7), u64(7), public, [], issued=1, flags=1)
    for name, said, steps in [("three applications", whole, records), ("a value", nothing, [])]:
        yield name, said, key.sign(said), steps, public


def document():
    valid, invalid = [], []
    for name, said, signature, steps, public in receipts():
        valid.append({
            "name": name, "statement": said.hex(), "signature": signature.hex(),
            "receipt": (said + signature + b"".join(steps)).hex(),
        })
        if not steps:
            continue
        def refused(name, said=said, steps=steps):
            invalid.append({"name": name, "receipt": (said + signature + b"".join(steps)).hex()})
        refused("records not in order", steps=steps[::-1])
        refused("a record twice", steps=[steps[0], *steps[:2]])
        refused("a record missing", steps=steps[:2])
        refused("another version", said=said.replace(b"receipt 1", b"receipt 2"))
        refused("an unknown flag", said=said[:152] + numbers(2) + said[160:])
        refused("another sum", said=said[:192] + numbers(1) + said[200:])
        refused("a currency with something behind its end", said=said[:-1] + b"x")
        refused("fuel that nobody counted", steps=[one[:80] + numbers(1, 0) if one[88] & 2 else one for one in steps])
    return {"seed": SEED.hex(), "public_key": public.hex(), "valid": valid, "invalid": invalid}


def main():
    path = pathlib.Path(__file__).with_name("receipts.json")
    text = json.dumps(document(), indent=1) + "\n"
    if "--check" in sys.argv:
        sys.exit(0 if path.read_text() == text else f"{path} is not what this makes")
    path.write_text(text)


main()
