# SPDX-License-Identifier: Apache-2.0
"""Makes evaluation.json, the test vectors of ../evaluation.md.

Handles are made by encoding.py beside it; nothing here evaluates anything: the
expected results are written by hand, rule by rule. Needs what generate.py needs:

    /tmp/vectors/bin/python docs/spec/vectors/generate_evaluation.py            # writes evaluation.json
    /tmp/vectors/bin/python docs/spec/vectors/generate_evaluation.py --check    # compares with it

Whatever is made with `keep` is given to the case that comes next, save what is `lost`.
"""

import json
import pathlib
import sys

import encoding as E
from encoding import shallow, strict

given = {}
cases = []


def blob(content, keep=True):
    content = content.encode() if isinstance(content, str) else content
    handle = E.blob(content)
    if keep and E.literal(handle) is None:
        given[handle] = {"handle": E.text(handle), "blob": content.hex()}
    return handle


def tree(*entries, keep=True):
    handle = E.tree(entries)
    if keep:
        given[handle] = {"handle": E.text(handle), "tree": [E.text(entry) for entry in entries]}
    return handle


def failure(code, application, detail, keep=False):
    tree(blob(code, keep), application, blob(detail, keep), keep=keep)
    return E.failure(code.encode(), application, E.blob(detail.encode()))[0]


n = E.u64
ref = E.lowered
ident = E.identification
app_of = E.application
sel_of = E.selection
LIM = E.blob(b"")


def app(procedure, *arguments, limits=LIM):
    procedure = blob(procedure) if isinstance(procedure, str) else procedure
    return app_of(tree(limits, procedure, *arguments))


def sel(target, index, keep=True):
    return sel_of(tree(target, n(index), keep=keep))


def rng(target, begin, end):
    return sel_of(tree(target, n(begin), n(end)))


def case(rule, name, goal, result, applications, lost=()):
    """`result` is a handle, or the specified part of a failure that need not last."""
    for handle in lost:
        del given[E.plain_tree(handle)]
    expected = {"failure": result} if isinstance(result, dict) else {"result": E.text(result)}
    objects = list(given.values())
    given.clear()
    cases.append(
        {"name": name, "rule": rule, "objects": objects, "goal": E.text(goal), **expected, "applications": applications}
    )


BIG = bytes(range(40))
# --- identification
case("identification", "a literal is its own complete result", strict(ident(n(5))), n(5), 0)
case("identification", "a literal is its own shallow result", shallow(ident(n(5))), n(5), 0)
b = blob(BIG)
case("identification", "a blob strictly is an object", strict(ident(b)), b, 0)
b = blob(BIG, keep=False)
case("identification", "a blob shallowly is a ref, and is not needed", shallow(ident(b)), ref(b), 0)
b = blob(BIG, keep=False)
case(
    "identification",
    "a blob that is nowhere",
    strict(ident(b)),
    {"code": "missing-data", "application": E.text(ident(b))},
    0,
)
t = tree(n(1), n(2))
case("identification", "a tree without anything lazy keeps its handle", strict(ident(t)), t, 0)
t = tree(n(1), keep=False)
case("identification", "a tree shallowly is a ref, and is not needed", shallow(ident(t)), ref(t), 0)
t = tree()
case("identification", "the empty tree", strict(ident(t)), t, 0)
# --- application
case("application", "a procedure gives a value", strict(app("add", n(1), n(2))), n(3), 1)
case(
    "application",
    "a strict argument is replaced by its result",
    strict(app("add", n(1), strict(app("add", n(2), n(3))))),
    n(6),
    2,
)
case(
    "application",
    "a literal is not lowered by a shallow argument",
    strict(app("add", n(1), shallow(app("add", n(2), n(3))))),
    n(6),
    2,
)
b = blob(BIG)
t = app("tree", shallow(ident(b)))
case("application", "a shallow argument is a ref", shallow(t), ref(tree(ref(b), keep=False)), 1)
x = app("add", n(1), n(2))
case("application", "a thunk as argument stays a thunk", shallow(app("tree", x)), ref(tree(x, keep=False)), 1)
x = app("add", n(1), n(2))
inner = tree(strict(x))
case(
    "application",
    "an encode within an argument stays an encode",
    shallow(app("tree", inner)),
    ref(tree(inner, keep=False)),
    1,
)
x = app("add", n(1), n(2))
inner = tree(strict(x))
case(
    "application",
    "an encode within a result is evaluated by a strict goal",
    strict(app("tree", inner)),
    tree(tree(n(3), keep=False), keep=False),
    2,
)
x = app("add", n(1), n(2))
case("application", "a thunk as result is followed", strict(app("return", x)), n(3), 2)
x = app("return", app("return", app("return", n(7))))
case("application", "a chain of thunks", shallow(x), n(7), 3)
e = strict(ident(LIM))
case("application", "limits given by an encode", strict(app("add", n(1), n(2), limits=e)), n(3), 1)
procs = tree(blob("return"), blob("add"))
case("application", "a procedure given by an encode", strict(app(strict(sel(procs, 1)), n(1), n(2))), n(3), 1)
case("application", "a procedure that applies its arguments", strict(app("call", blob("add"), n(1), n(2))), n(3), 2)
x = app("add", n(1), n(2))
t = tree(x, strict(x), shallow(x))
case(
    "application",
    "an application runs once",
    strict(app("tree", t, strict(x))),
    tree(tree(n(3), n(3), n(3), keep=False), n(3), keep=False),
    2,
)
yes = app("add", n(1), n(2))
no = app("add", n(3), n(4))
case("application", "the branch not taken need not exist", strict(app("if", n(1), yes, no)), n(3), 2, lost=[no])
yes = app("add", n(1), n(2))
no = app("add", n(3), n(4))
case("application", "the other branch", strict(app("if", n(0), yes, no)), n(7), 2, lost=[yes])
b = blob(BIG, keep=False)
t = app("tree", ref(b))
case("application", "a ref is no input", shallow(t), ref(tree(ref(b), keep=False)), 1)
b = blob(BIG, keep=False)
t = app("tree", b)
case("application", "an input that is nowhere", shallow(t), {"code": "missing-data", "application": E.text(t)}, 0)
b = blob(BIG, keep=False)
t = app("tree", tree(tree(n(1), b)))
case(
    "application",
    "an input within trees that is nowhere",
    shallow(t),
    {"code": "missing-data", "application": E.text(t)},
    0,
)
x = app("add", n(1), n(2))
case(
    "application",
    "a definition that is nowhere",
    strict(x),
    {"code": "missing-data", "application": E.text(x)},
    0,
    lost=[x],
)


# --- malformed applications
def bad(name, t, why, applications=0, lost=()):
    case("application", name, strict(t), failure("bad-thunk", t, "not an application: " + why), applications, lost)


bad("an empty tree is no application", app_of(tree()), "it has no limits")
bad("limits alone are no application", app_of(tree(LIM)), "it has no procedure")
bad("limits of another length", app("add", n(1), n(2), limits=n(0)), "the limits do not have 25 bytes")
bad("limits of another form", app("add", n(1), n(2), limits=blob(b"\2" + bytes(24))), "the limits have an unknown form")
bad("limits that are a tree", app("add", n(1), n(2), limits=tree()), "the limits are not a literal")
bad("limits that are a thunk", app("add", n(1), n(2), limits=ident(LIM)), "the limits are not a literal")
NOPROC = "the procedure is neither a blob nor a curried tree"
bad("a procedure that is a ref", app(ref(blob(BIG)), n(1)), NOPROC)
bad("a procedure that is a thunk", app(ident(blob("add")), n(1), n(2)), NOPROC)
f = failure("guest", n(0), "x", keep=True)
bad("a procedure that is a failure", app(f, n(1)), NOPROC)
b = blob(BIG)
t = app(shallow(ident(b)), n(1))
r = app_of(tree(LIM, ref(b), n(1), keep=False))
case(
    "application",
    "a procedure by a shallow encode is a ref; the failure names the resolved application",
    strict(t),
    failure("bad-thunk", r, "not an application: " + NOPROC),
    0,
)
x = app("add", n(1), n(2))
t = app_of(tree(LIM, ref(blob(BIG)), strict(x)))
r = app_of(tree(LIM, ref(blob(BIG)), n(3), keep=False))
case(
    "application",
    "encodes are replaced before the shape is looked at",
    strict(t),
    failure("bad-thunk", r, "not an application: " + NOPROC),
    1,
)
t = app("no such procedure", n(1))
case("application", "a blob that is no procedure", strict(t), failure("bad-procedure", t, ""), 1)
# --- currying
c = tree(blob("add"), n(7))
case("currying", "bound arguments come first", strict(app(c, n(1))), n(8), 1)
c = tree(tree(blob("if"), n(0)), n(5))
case("currying", "a curried procedure curried", strict(app(c, n(6))), n(6), 1)
c = tree(blob("add"), strict(app("add", n(1), n(2))))
case(
    "currying",
    "an encode among the bound arguments is replaced once it stands in the application",
    strict(app(c, n(4))),
    n(7),
    2,
)
c = tree()
t = app(c, n(1))
case(
    "currying",
    "an empty tree is no curried procedure",
    strict(t),
    failure("bad-thunk", t, "not an application: the curried procedure is an empty tree"),
    0,
)
c = tree(blob("add"), n(7), keep=False)
t = app(c, n(1))
case(
    "currying", "a curried procedure that is nowhere", strict(t), {"code": "missing-data", "application": E.text(t)}, 0
)
c = tree(n(1), strict(ident(n(2))))
t = app(c)
r = app_of(tree(LIM, n(1), n(2), keep=False))
case("currying", "what is bound need not be a procedure", strict(t), failure("bad-procedure", r, ""), 1)
# --- failures
x = app("fail", blob("why"))
case("failure", "a procedure that fails", strict(x), failure("guest", x, "why"), 1)
x = app("fail", blob("why"))
case("failure", "a failure is not lowered", shallow(x), failure("guest", x, "why"), 1)
x = app("fail", blob("why"))
t = app("add", n(1), strict(x))
case("failure", "an argument that fails is the result", strict(t), failure("guest", x, "why"), 1)
x = app("fail", blob("1"))
y = app("fail", blob("2"))
t = app("tree", n(1), strict(x), strict(y))
case("failure", "the first argument that fails is the result", strict(t), failure("guest", x, "1"), 1)
x = app("fail", blob("1"))
y = app("fail", blob("2"))
t = tree(n(1), tree(n(2), x), y)
case("failure", "the first entry that fails is the complete result", strict(ident(t)), failure("guest", x, "1"), 1)
f = failure("guest", n(0), "x", keep=True)
case("failure", "a failure as argument is data", shallow(app("tree", f)), ref(tree(f, keep=False)), 1)
f = failure("guest", n(0), "x", keep=True)
case("failure", "a complete tree has no failure in it", strict(app("tree", f)), f, 1)
f = failure("guest", n(0), "x", keep=False)
case("failure", "a failure that is nowhere still stands for itself", strict(ident(tree(n(1), f))), f, 0)
f = failure("guest", n(0), "x", keep=True)
case("failure", "a failure as result", strict(app("add", n(1), strict(app("return", f)))), f, 1)
x = app("fail", blob("why"))
t = app("tree", x)
case("failure", "a thunk that would fail is not asked", shallow(t), ref(tree(x, keep=False)), 1)
x = app("add", n(1))
case("failure", "a procedure that misuses its arguments", strict(x), failure("bad-handle", x, ""), 1)
# --- selection
t = tree(n(4), n(5))
case("selection", "an entry of a tree", strict(sel(t, 1)), n(5), 0)
t = tree(n(4), n(5))
case("selection", "an entry of a tree behind a ref", strict(sel(ref(t), 1)), n(5), 0)
case("selection", "a byte of a literal", strict(sel(blob("abc"), 1)), blob("b"), 0)
case("selection", "a byte of a blob", strict(sel(blob(BIG), 39)), blob(BIG[39:]), 0)
case("selection", "a byte of a blob behind a ref", shallow(sel(ref(blob(BIG)), 39)), blob(BIG[39:]), 0)
case("selection", "a range of a literal", strict(rng(blob("abcdef"), 2, 4)), blob("cd"), 0)
case("selection", "a long range of a blob", strict(rng(blob(BIG), 1, 40)), blob(BIG[1:], keep=False), 0)
case(
    "selection", "a long range of a blob, shallowly", shallow(rng(blob(BIG), 1, 40)), ref(blob(BIG[1:], keep=False)), 0
)
case("selection", "the whole of a blob", strict(rng(blob(BIG), 0, 40)), blob(BIG, keep=False), 0)
case("selection", "an empty range at the end of a blob", strict(rng(blob(BIG), 40, 40)), blob(b""), 0)
t = tree(n(1), n(2), n(3))
case("selection", "a range of a tree", strict(rng(t, 1, 3)), tree(n(2), n(3), keep=False), 0)
t = tree(n(1), n(2))
case("selection", "an empty range at the end of a tree", strict(rng(t, 2, 2)), tree(keep=False), 0)
x = app("add", n(1), n(2))
t = tree(n(1), x)
case(
    "selection",
    "a range of a tree is not evaluated by a shallow goal",
    shallow(rng(t, 1, 2)),
    ref(tree(x, keep=False)),
    0,
)
x = app("add", n(1), n(2))
t = tree(n(1), x)
case("selection", "a range of a tree is evaluated by a strict goal", strict(rng(t, 1, 2)), tree(n(3), keep=False), 1)
x = app("add", n(1), n(2))
t = tree(x, app("add", n(3), n(4)))
case("selection", "an entry that is a thunk is followed, its siblings are not", shallow(sel(t, 0)), n(3), 1)
x = app("tree", app("add", n(1), n(2)), n(9))
case("selection", "a thunk as target is evaluated shallowly", strict(sel(x, 1)), n(9), 1)
x = app("tree", app("add", n(1), n(2)), n(9))
case("selection", "a strict encode as target is evaluated completely", strict(sel(strict(x), 1)), n(9), 2)
x = app("tree", app("add", n(1), n(2)), n(9))
case("selection", "a shallow encode as target", strict(sel(shallow(x), 0)), n(3), 2)
t = tree(tree(n(1), n(2)), n(3))
case("selection", "a selection of a selection", strict(sel(sel(t, 0), 1)), n(2), 0)
f = failure("guest", n(6), "x", keep=True)
case("selection", "a failure written as target is read", strict(sel(f, 0)), blob("guest"), 0)
x = app("fail", blob("why"))
case("selection", "a target that fails is the result", strict(sel(x, 0)), failure("guest", x, "why"), 1)
f = failure("guest", n(6), "x", keep=False)
t = tree(f)
case("selection", "a failure as entry is the result", shallow(sel(t, 0)), f, 0)
t = tree(app("add", n(1), n(2)), keep=True)
case(
    "selection",
    "a target that is nowhere",
    strict(sel(t, 0)),
    {"code": "missing-data", "application": E.text(sel(t, 0, keep=False))},
    0,
    lost=[t],
)


def out(name, s, detail, applications=0):
    case("selection", name, strict(s), failure("out-of-range", s, detail), applications)


t = tree(n(1), n(2))
out("an index past the end", sel(t, 2), f"index 2 of {E.text(t)}, which has 2")
t = tree(n(1), n(2))
out("the largest index", sel(t, 2**64 - 1), f"index {2**64-1} of {E.text(t)}, which has 2")
t = tree()
out("an entry of the empty tree", sel(t, 0), f"index 0 of {E.text(t)}, which has 0")
out("a byte past the end of a literal", sel(blob("abc"), 3), f'index 3 of {E.text(blob("abc"))}, which has 3')
b = blob(BIG)
out("a range past the end", rng(b, 39, 41), f"range 39..41 of {E.text(b)}, which has 40")
b = blob(BIG)
out("a range past the end of a ref", rng(ref(b), 39, 41), f"range 39..41 of {E.text(b)}, which has 40")
b = blob(BIG)
out("a range that ends before it begins", rng(b, 2, 1), f"range 2..1 of {E.text(b)}, which has 40")
b = blob(BIG)
out("an empty range past the end", rng(b, 41, 41), f"range 41..41 of {E.text(b)}, which has 40")
x = app("tree", n(1))
t = tree(n(1), keep=False)
out("an index past the end of a result", sel(x, 1), f"index 1 of {E.text(t)}, which has 1", 1)
f = failure("guest", n(6), "x", keep=True)
out("an index past the end of a failure", sel(f, 3), f"index 3 of {E.text(E.plain_tree(f))}, which has 3")


def badsel(name, t, why):
    case("selection", name, strict(t), failure("bad-thunk", t, "not a selection: " + why), 0)


badsel("an empty tree is no selection", sel_of(tree()), "it is empty")
badsel("a target alone is no selection", sel_of(tree(n(1))), "it has neither two nor three entries")
badsel("four entries are no selection", sel_of(tree(n(1), n(0), n(0), n(0))), "it has neither two nor three entries")
badsel("an index of seven bytes", sel_of(tree(n(1), blob(bytes(7)))), "an index is not an eight-byte literal")
badsel("an index that is an encode", sel_of(tree(n(1), strict(ident(n(0))))), "an index is not an eight-byte literal")
badsel("an end that is a thunk", sel_of(tree(n(1), n(0), ident(n(1)))), "an index is not an eight-byte literal")
# --- strict
b = blob(BIG)
t = tree(ref(b))
case("strict", "a ref is lifted", strict(ident(t)), tree(b, keep=False), 0)
i = tree(n(1))
t = tree(ref(i), n(2))
case("strict", "a ref of a tree is lifted", strict(ident(t)), tree(i, n(2), keep=False), 0)
b = blob(BIG, keep=False)
t = tree(ref(b))
case(
    "strict",
    "a ref whose data is nowhere",
    strict(ident(t)),
    {"code": "missing-data", "application": E.text(ident(t))},
    0,
)
b = blob(BIG)
t = tree(shallow(ident(b)), ident(b), strict(ident(b)))
case("strict", "an entry's own style does not matter", strict(ident(t)), tree(b, b, b, keep=False), 0)
x = app("tree", app("add", n(1), n(2)))
t = tree(n(0), tree(shallow(x)))
case(
    "strict",
    "everything within everything",
    strict(ident(t)),
    tree(n(0), tree(tree(n(3), keep=False), keep=False), keep=False),
    2,
)
t = tree(ident(n(1)), n(2))
case("strict", "an identification within", strict(ident(t)), tree(n(1), n(2), keep=False), 0)


# --- encodes as results, through a selection: as arguments they would be replaced
def giving(e):
    return sel(tree(e), 0)


x = lambda: app("tree", app("add", n(1), n(2)))
case(
    "encode as result",
    "strict under shallow is complete, then lowered",
    shallow(giving(strict(x()))),
    ref(tree(n(3), keep=False)),
    2,
)
case(
    "encode as result",
    "shallow under shallow",
    shallow(giving(shallow(x()))),
    ref(tree(app("add", n(1), n(2)), keep=False)),
    1,
)
case(
    "encode as result",
    "shallow under strict is lifted and completed",
    strict(giving(shallow(x()))),
    tree(n(3), keep=False),
    2,
)
case("encode as result", "strict under strict", strict(giving(strict(x()))), tree(n(3), keep=False), 2)
x = app("fail", blob("why"))
case("encode as result", "that fails", shallow(giving(strict(x))), failure("guest", x, "why"), 1)


DESCRIPTION = (
    "Test vectors of docs/spec/evaluation.md, made by generate_evaluation.py. Each case: evaluate `goal` where nothing "
    "but `objects` is at hand. The result is `result`, or a failure of which only code and application are specified. "
    "`applications` counts runs of the built-in procedures of section 12."
)


def main():
    assert len({case["name"] for case in cases}) == len(cases)
    lines = ["{", f'"description": {json.dumps(DESCRIPTION)},', '"cases": [']
    written = "\n".join([*lines, ",\n".join(map(json.dumps, cases)), "]", "}"]) + "\n"
    target = pathlib.Path(__file__).with_name("evaluation.json")
    if "--check" in sys.argv[1:]:
        sys.exit(0 if target.read_text("utf-8") == written else f"{target} is not what generate_evaluation.py makes")
    target.write_text(written, "utf-8")
    print(f"{target}: {len(cases)} cases")


if __name__ == "__main__":
    main()
