# SPDX-License-Identifier: Apache-2.0
# Values as JSON, and why one cannot be. It is run before `function.py`, in the same module, and is a
# part of what `sinew sdk python` writes.

import json

DEPTH_MAX = 200


def json_encoder():
    """What writes JSON. That of the library is made anew for each value, which takes longer than most values."""
    usual = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    try:
        text = json.encoder.encode_basestring
        native = json.encoder.c_make_encoder(None, usual.default, text, None, ":", ",", False, False, False)
        "".join(native([], 0))
    except (AttributeError, TypeError):
        return usual.encode
    return lambda value: "".join(native(value, 0))


encode_json = json_encoder()
decode_any_json, scan_json = json.JSONDecoder().decode, json.JSONDecoder().scan_once


def decode_json(text):
    """A value from JSON; the usual way where something stands before or behind it."""
    try:
        value, end = scan_json(text, 0)
    except (StopIteration, ValueError):
        return decode_any_json(text)
    return value if end == len(text) else decode_any_json(text)


def utf8(text):
    """Lone surrogates, which no UTF-8 has, become question marks."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "replace")


def json_bytes(value, what):
    try:
        return encode_json(value).encode()
    except UnicodeEncodeError:
        # Escaped, a lone surrogate is JSON.
        return json.dumps(value, separators=(",", ":")).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise not_json(value, what, error) from None


def not_json(value, what, error):
    """Which part of a value cannot be written as JSON, and why."""
    path, reason = culprit(value, "", 0, set()) or ("", str(error))
    advice = "return dicts with string keys, lists, strings, finite numbers, booleans and None, or bytes"
    return TypeError(f"{what}{path} cannot be written as JSON: {reason}; {advice}")


def culprit(value, path, depth, above):
    """Path and reason of the first value within that is no JSON."""
    if value is None or isinstance(value, (str, bool, int)):
        return None
    if isinstance(value, float):
        return None if value - value == 0 else (path, f"{value!r} is no finite number")
    if not isinstance(value, (dict, list, tuple)):
        return path, f"it is a {kind_name(type(value))}"
    if id(value) in above:
        return path, "it contains itself"
    if depth == DEPTH_MAX:
        return path, "it is nested too deep"
    above = above | {id(value)}
    if not isinstance(value, dict):
        found = (culprit(item, f"{path}[{at}]", depth + 1, above) for at, item in enumerate(value))
        return next(filter(None, found), None)
    for key, item in value.items():
        if not (key is None or isinstance(key, (str, int, float))):
            return path, f"a key of it is a {kind_name(type(key))}"
        if found := culprit(item, f"{path}[{key!r}]", depth + 1, above):
            return found
    return None


def kind_name(kind):
    return kind.__qualname__ if kind.__module__ in ("builtins", None) else f"{kind.__module__}.{kind.__qualname__}"


