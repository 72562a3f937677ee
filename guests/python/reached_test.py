# SPDX-License-Identifier: Apache-2.0
"""Tests of `reached.py`: after which edits the results of a pure function still hold."""

import os
import pathlib
import sys
import tempfile
import threading
import types
import unittest

HERE = pathlib.Path(__file__).parent

# What `reached.py` is run in has these.
reached = types.ModuleType("reached")
reached.os, reached.sys = os, sys
exec(compile((HERE / "reached.py").read_text(), "reached.py", "exec"), reached.__dict__)

MAIN = '''"""A workflow."""
import functools, math
import helpers
from helpers import scaled
from sinew import function, workflow
from kinds import Kind

LIMIT = 3
RATE: int = 7
TABLE = {"a": 1}
TABLE["b"] = 2
WORDS = [str(number) for number in range(LIMIT)]

def inner(x):
    return x + RATE

@functools.lru_cache
def cached(x):
    return x

@function(pure=True)
def first(x):
    """It has a text."""
    return inner(x)

@function(pure=True)
def second(x):
    return scaled(x) + len(TABLE)

@function(pure=True)
def third(x):
    return helpers.twice(cached(x))

@function(pure=True)
def fourth(x):
    from helpers import late
    return late(x)

@function(pure=True)
def fifth(x, key):
    return sorted(x, key=key)

def given(x):
    return -x

@workflow
def handler(event):
    return [first(1), second(2), third.map([3]), fourth(4), fifth([1, 2], given)]
'''
HELPERS = """
from base import unit

FACTOR = 2

def scaled(x):
    return x * FACTOR * unit()

def twice(x):
    return 2 * x

def late(x):
    return x

def unused(x):
    return x + 5
"""
KINDS = """
class Kind:
    def area(self):
        return side(self)

def side(kind):
    return 1
"""
BASE = "def unit():\n    return 1\n\ndef other():\n    return 2\n"
FILES = {"main.py": MAIN, "helpers.py": HELPERS, "kinds.py": KINDS, "base.py": BASE, "data.json": "{}"}
STEPS = ["first", "second", "third", "fourth", "fifth"]

# Edits after which `f` returns something else: programs of somebody who looked for what is overlooked.
HEAD = "from sinew import function, workflow\n"
F = "\n@function(pure=True)\ndef f(x):\n    return "
USES = "from helpers import g\n{}" + F + "g(x)\n"
EDITS = [
    ("a context of a library", {"main.py": "import decimal\n" + USES.format("decimal.getcontext().prec = 5\n"),
     "helpers.py": "from decimal import Decimal\ndef g(x):\n    return str(Decimal(x) / 3)\n"}, "main.py", "= 5", "= 9"),
    ("the environment", {"main.py": "import os\n" + USES.format("os.environ['A'] = '1'\n"),
     "helpers.py": "import os\ndef g(x):\n    return os.environ['A']\n"}, "main.py", "'1'", "'2'"),
    ("a result that nobody uses", {"main.py": "import random\n" + USES.format("state = random.seed(1)\n"),
     "helpers.py": "import random\ndef g(x):\n    return random.random()\n"}, "main.py", "seed(1)", "seed(2)"),
    ("another module's name", {"main.py": "import helpers\n" + USES.format("helpers.FACTOR = 5\n"),
     "helpers.py": "FACTOR = 1\ndef g(x):\n    return FACTOR\n"}, "main.py", "= 5", "= 6"),
    ("what others registered", {"main.py": "import plugin\n" + USES.format(""), "helpers.py": "ALL = {}\ndef g(x):\n    return ALL['a'](x)\n",
     "plugin.py": "from helpers import ALL\nALL['a'] = lambda x: x + 1\n"}, "plugin.py", "+ 1", "+ 2"),
    ("a list that grew", {"main.py": "import plugin\n" + USES.format(""), "helpers.py": "ALL = []\ndef g(x):\n    return sum(ALL)\n",
     "plugin.py": "from helpers import ALL\nALL += [1]\n"}, "plugin.py", "[1]", "[2]"),
    ("another name of the same", {"main.py": "TABLE = {}\nALIAS = TABLE\nALIAS['a'] = 2\n" + F + "TABLE['a']\n"}, "main.py", "= 2", "= 3"),
    ("an attribute of a class", {"main.py": "class Shape:\n    scale = 1\nShape.scale = 2\n" + F + "x.scale\n"}, "main.py", "= 2", "= 3"),
    ("a class that is made by a call", {"main.py": "import collections\nP = collections.namedtuple('P', 'x y')\n" + F + "x.x\n"}, "main.py", "x y", "y x"),
    ("what is made along the way", {"main.py": "A = (LIMIT := 3) + 1\n" + F + "LIMIT\n"}, "main.py", ":= 3", ":= 4"),
    ("methods that are called in a loop", {"main.py": "ON = []\nPS = [ON, ON]\ndone = [p.append(1) for p in PS]\n" + F + "len(ON)\n"},
     "main.py", "in PS]", "in PS[1:]]"),
    ("what sorts", {"main.py": "ON = []\ndef note(x):\n    ON.append(x)\nkept = sorted([1, 2], key=note)\n" + F + "sum(ON)\n"}, "main.py", "[1, 2]", "[1, 3]"),
    ("what defaults do", {"main.py": "import itertools\nIDS = itertools.count()\ndef other(x, at=next(IDS)):\n    return at\ndef g(x, at=next(IDS)):\n"
     "    return at\n" + F + "g(x)\n"}, "main.py", "def other(x, at=next(IDS))", "def other(x, at=0)"),
    ("a module below another one", {"main.py": "import pack\nimport other\n" + F + "pack.sub.h(x)\n", "pack/__init__.py": "",
     "pack/sub.py": "def h(x):\n    return 1\n", "other.py": "import pack.sub\n"}, "pack/sub.py", "return 1", "return 2"),
    ("a function that is imported where it is handed on", {"main.py": "def handler(event):\n    from helpers import g\n    return f(1, g)\n" + F + "x()\n",
     "helpers.py": "def g():\n    return 1\n"}, "helpers.py", "return 1", "return 2"),
    ("the order of imports", {"main.py": "import pa\nimport pb\n" + USES.format(""), "helpers.py": "ALL = {}\ndef g(x):\n    return ALL\n",
     "pa.py": "from helpers import ALL\nALL.update(x=1)\n", "pb.py": "from helpers import ALL\nALL.update(x=2)\n"},
     "main.py", "import pa\nimport pb", "import pb\nimport pa"),
    ("an import that is moved away", {"main.py": "import pa\n" + USES.format(""), "helpers.py": "ALL = {}\ndef g(x):\n    return ALL\n",
     "pa.py": "from helpers import ALL\nALL.update(x=1)\n"}, "main.py", "import pa\n", ""),
    ("annotations that become texts", {"main.py": "def g(x: int):\n    return x\n" + F + "str(g.__annotations__)\n"}, "main.py", HEAD,
     "from __future__ import annotations\n" + HEAD),
    ("a name in a text", {"main.py": "from lib import query\ndef limit(x):\n    return 3\n" + F + "query('x > @limit(x)')\n"}, "main.py", "return 3", "return 4"),
    ("a program", {"main.py": "import subprocess, sys\n" + F + "subprocess.run([sys.executable, '-m', 'tool'])\n", "tool.py": "print(1)\n"}, "tool.py", "1", "2"),
    ("the file itself", {"main.py": "import zlib\nVERSION = zlib.crc32(open(__file__, 'rb').read())\n" + F + "VERSION\n"}, "main.py", "VERSION = zlib",
     "# A word.\nVERSION = zlib"),
    ("globals of a function", {"main.py": "LIMIT = 1\ndef g():\n    return 0\n" + F + "g.__globals__['LIM' + 'IT']\n"}, "main.py", "= 1", "= 2"),
    ("another place for modules", {"main.py": "import os\nos.sys.path.insert(0, 'vendor')\nimport lib2\n" + F + "lib2.h(x)\n",
     "vendor/lib2.py": "def h(x):\n    return 1\n"}, "vendor/lib2.py", "return 1", "return 2"),
    ("a module that a library imports", {"main.py": F + "__import_by_a_library(x)\n", "conf.py": "V = 1\n"}, "conf.py", "1", "2"),
    ("singledispatch", {"main.py": "import functools\n@functools.singledispatch\ndef area(x):\n    return 0\n@area.register\ndef _(x: int):\n    return 1\n" + F
     + "area(x)\n"}, "main.py", "return 1", "return 2"),
    ("a module that a package brings", {"main.py": "from pack import mod\nfrom pack.mod import other" + F + "mod.g(x)\n", "pack/__init__.py": "from . import mod\n",
     "pack/mod.py": "def other():\n    pass\ndef g(x):\n    return 1\n"}, "pack/mod.py", "return 1", "return 2"),
    ("a constant of a module beside", {"main.py": "from pack.a import g\n" + F + "g(x)\n", "pack/__init__.py": "", "pack/a.py": "from . import b\ndef g(x):\n    return b.RATE\n",
     "pack/b.py": "RATE = 1\n"}, "pack/b.py", "= 1", "= 2"),
    ("a name that a package replaces", {"main.py": "from pack import mod\n" + F + "mod.g(x)\n", "pack/__init__.py": "mod = None\nfrom . import mod\n",
     "pack/mod.py": "def g(x):\n    return 1\n"}, "pack/mod.py", "return 1", "return 2"),
    ("another name in a text", {"main.py": "from helpers import MAX_ROWS as LIMIT\nfrom lib import query\n" + F + "query('a > @LIMIT')\n", "helpers.py": "MAX_ROWS = 1\n"},
     "helpers.py", "= 1", "= 2"),
    ("another name in a file", {"main.py": "import lib, pack\n" + F + "lib.load('a.json')(x)\n", "pack/__init__.py": "from .text import clean_text as clean\n",
     "pack/text.py": "def clean_text(x):\n    return 1\n", "a.json": '["pack.clean"]'}, "pack/text.py", "return 1", "return 2"),
    ("a module in a text", {"main.py": "import os\nfrom lib import settings\nfrom config import DEBUG\nos.environ['SETTINGS'] = 'config'\n" + F + "settings.RATE\n",
     "config.py": "DEBUG = 1\nRATE = 5\n"}, "config.py", "= 5", "= 6"),
    ("a module that makes up names", {"main.py": "from conf import RATE\n" + F + "RATE\n",
     "conf.py": "RATE: int\nBASE = 5\ndef __getattr__(name):\n    return BASE\n"}, "conf.py", "= 5", "= 6"),
    ("lines that are told", {"main.py": "import traceback\ndef g():\n    pass\n" + F + "traceback.format_stack()\n"}, "main.py", "def g():\n    pass\n", ""),
    ("modules that are read", {"main.py": "import helpers, os\nV = [open(name).read() for name in os.listdir()]\n" + F + "V\n", "helpers.py": "# one\n"},
     "helpers.py", "one", "two"),
    ("another module's file", {"main.py": "import helpers\n" + F + "open(helpers.__file__).read()\n", "helpers.py": "# one\n"}, "helpers.py", "one", "two"),
    ("a program of the system's", {"main.py": "import os\nfrom tool import other\n" + F + "os.system('python3 -m tool')\n",
     "tool.py": "def other():\n    pass\nif __name__ == '__main__':\n    print(1)\n"}, "tool.py", "print(1)", "print(2)"),
    ("a packed pickle", {"main.py": "import joblib, helpers\n" + F + "joblib.load('m.bin')(x)\n", "helpers.py": "def clean(x):\n    return 1\n", "m.bin": b"\0\xff"},
     "helpers.py", "return 1", "return 2"),
    ("an iterator that a default uses up", {"main.py": "IT = iter([1, 2])\ndef other(x=[*IT]):\n    pass\n" + F + "list(IT)\n"}, "main.py", "x=[*IT]", "x=0"),
    ("a name in other letters", {"main.py": "import helpers, lib\n" + F + "lib.load('a.json')(x)\n", "helpers.py": "def gr\u00f6\u00dfe(x):\n    return 1\n",
     "a.json": '["helpers.gr\u00f6\u00dfe"]'}, "helpers.py", "return 1", "return 2"),
    ("the manifest", {"main.py": F + "open('sinew.toml').read()\n", "sinew.toml": "a = 1"}, "sinew.toml", "1", "2"),
    ("a name within a class", {"main.py": "_A__K = 1\nclass A:\n    def m(self):\n        return __K\n" + F + "A().m()\n"}, "main.py", "= 1", "= 2"),
]  # fmt: skip


class Reached(unittest.TestCase):
    def told(self, files, names=STEPS):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in files.items():
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(text if isinstance(text, bytes) else text.encode())
            return {name: reached.reached_by("main", name, folder)[0] for name in names}

    def changed(self, name, before, after):
        """Which functions an edit changes."""
        text = FILES.get(name, "")
        self.assertEqual(text.count(before) if before else 1, 1, before)
        edited = {**FILES, name: text.replace(before, after) if before else after}
        before, after = self.told(FILES), self.told(edited)
        self.assertTrue(all(before.values()) and all(after.values()), (before, after))
        return [name for name in STEPS if before[name] != after[name]]

    def test_what_changes_nothing_but_text_counts_for_none(self):
        self.assertEqual(self.changed("main.py", "LIMIT = 3", "# Something else.\n\nLIMIT  =  3"), [])
        self.assertEqual(self.changed("main.py", "return x + RATE", "return (x +  # more\n        RATE)"), [])
        self.assertEqual(self.changed("main.py", "def inner", "def new(x):\n    return x\n\ndef inner"), [])
        self.assertEqual(self.changed("main.py", "return [first(1)", "return [first(7)"), [])
        self.assertEqual(self.changed("helpers.py", "return x + 5", "return x"), ["third"])
        main = '\nif __name__ == "__main__":\n    print(handler({}))\n'
        self.assertEqual(self.changed("main.py", "@workflow", main + "@workflow"), [])
        self.assertEqual(self.changed("sinew.toml", "", "[functions.f]"), [])

    def test_what_a_function_uses_counts_for_it(self):
        self.assertEqual(self.changed("main.py", "return inner(x)", "return inner(x) + 1"), ["first"])
        self.assertEqual(self.changed("main.py", "return x + RATE", "return x - RATE"), ["first"])
        self.assertEqual(self.changed("main.py", "RATE: int = 7", "RATE: int = 8"), ["first"])
        # A list is made of this one when the module is loaded.
        self.assertEqual(self.changed("main.py", "LIMIT = 3", "LIMIT = 4"), STEPS)
        self.assertEqual(self.changed("helpers.py", "FACTOR = 2", "FACTOR = (2, -3)"), ["second", "third"])
        self.assertEqual(self.changed("base.py", "return 1", "return 3"), ["second", "third"])
        self.assertEqual(self.changed("base.py", "return 2", "return 3"), [])
        # Of a module that is used by its name all counts.
        self.assertEqual(self.changed("helpers.py", "return 2 * x", "return x"), ["third"])
        self.assertEqual(self.changed("main.py", "def cached(x):\n    return x", "def cached(x):\n    return -x"), ["third"])
        self.assertEqual(self.changed("helpers.py", "def late(x):\n    return x", "def late(x):\n    return -x"), ["third", "fourth"])
        self.assertEqual(self.changed("main.py", "sorted(x, key=key)", "sorted(x)"), ["fifth"])

    def test_what_others_can_lead_to_counts_for_all(self):
        edits = [
            ("main.py", '"""A workflow."""', '"""Another one."""'),
            ("main.py", 'TABLE["b"] = 2', 'TABLE["c"] = 2'),
            # An instance of a class, and what its methods use.
            ("kinds.py", "return side(self)", "return 2"), ("kinds.py", "return 1", "return 2"),
            # A function that is used as a value.
            ("main.py", "return -x", "return x"),
            ("helpers.py", "FACTOR = 2", "FACTOR = 2\nprint(1)"), ("main.py", "LIMIT = 3", "LIMIT = 3\nmath.pi = 3"),
            ("main.py", "LIMIT = 3", "LIMIT = 3\nkept = math.sqrt(4)"), ("main.py", "LIMIT = 3", "LIMIT = [3]"),
            ("main.py", "LIMIT = 3", "LIMIT = (here := 3)"), ("main.py", "LIMIT = 3", "try:\n    LIMIT = 3\nfinally:\n    pass"),
            ("main.py", "import functools, math", "import math, functools"), ("data.json", "{}", "[]"), ("more.txt", "", "text"),
            ("apart.py", "", "x = 1"), ("main.py", "def inner", "def more(x=math.sqrt(4)):\n    pass\n\ndef inner"),
            ("main.py", "def inner", "@helpers.late\ndef registered(x):\n    return x\n\ndef inner"),
        ]  # fmt: skip
        for edit in edits:
            self.assertEqual(self.changed(*edit), STEPS, edit)

    def test_what_a_text_or_a_file_may_name_counts_for_all(self):
        named = {**FILES, "main.py": MAIN.replace("LIMIT = 3", 'LIMIT = 3\nCALLED = "base.other"')}
        before, after = self.told(named), self.told({**named, "base.py": BASE.replace("return 2", "return 3")})
        self.assertTrue(all(before[name] and before[name] != after[name] for name in STEPS), (before, after))
        pickled = {**FILES, "model.pkl": b"\x80\x04cbase\nother\n."}
        before, after = self.told(pickled), self.told({**pickled, "base.py": BASE.replace("return 2", "return 3")})
        self.assertTrue(all(before[name] and before[name] != after[name] for name in STEPS), (before, after))

    def test_no_edit_that_changes_a_result_goes_unseen(self):
        for name, files, file, old, new in EDITS:
            files = {name: HEAD + text if name == "main.py" else text for name, text in files.items()}
            self.assertIn(old, files[file], name)
            before = self.told(files, ["f"])["f"]
            after = self.told({**files, file: files[file].replace(old, new)}, ["f"])["f"]
            # Nothing is told, or something else.
            self.assertTrue(before is None or before != after, name)

    def test_a_function_that_comes_from_elsewhere_as_a_value_counts_for_all(self):
        through = {**FILES, "helpers.py": HELPERS + "\nfrom base import other\n"}
        through["main.py"] = MAIN.replace("fifth([1, 2], given)", "fifth([1, 2], far)").replace(
            "import functools", "from helpers import other as far\nimport functools"
        )
        edited = {**through, "base.py": BASE.replace("return 2", "return 3")}
        before, after = self.told(through), self.told(edited)
        self.assertTrue(all(before[name] and before[name] != after[name] for name in STEPS), (before, after))

    def test_packages_are_followed(self):
        files = {
            "main.py": "from pack.part import used\nfrom pack import whole\n\ndef f(x):\n    return used(x)\n\ndef g(x):\n    return whole.h(x)\n",
            "pack/__init__.py": "VERSION = 1\n",
            "pack/part.py": "from ..pack import more\nfrom . import whole\n\ndef used(x):\n    return more.deep(x)\n\ndef not_used(x):\n    return x\n",
            "pack/more.py": "def deep(x):\n    return x\n",
            "pack/whole.py": "def h(x):\n    return x\n",
            "apart/other.py": "def other(x):\n    return x\n",
        }
        names = ["f", "g"]
        before = self.told(files, names)
        self.assertTrue(all(before.values()), before)

        def changed(name, old, new):
            self.assertIn(old, files[name])
            after = self.told({**files, name: files[name].replace(old, new)}, names)
            return [each for each in names if before[each] != after[each]]

        self.assertEqual(changed("pack/more.py", "return x", "return 1"), ["f"])
        self.assertEqual(changed("pack/part.py", "def not_used(x):\n    return x", "def not_used(x):\n    return 1"), [])
        self.assertEqual(changed("pack/whole.py", "return x", "return 1"), ["g"])
        # What nobody imports may be read all the same.
        self.assertEqual(changed("apart/other.py", "return x", "return 1"), names)

    def test_where_code_may_reach_what_it_does_not_name_nothing_is_told(self):
        for line in (
            "eval('1')", "x = globals()", "import importlib", "from importlib import import_module", "import sys\nsys.path.append('x')",
            "import sys\nsys.modules['a'] = 1", "from sys import path", "import sys as s", "from math import *", "import inspect",
            "text = open('tool.py')", "import sys\nlist(map(id, [sys]))", "def f():\n    exec('')", "from helpers import *",
            "from ... import helpers", "import builtins", "not python at all", "x = y.__globals__", "P = 0x" + "f" * 5000, "\0",
            "x = " + "(" * 500 + ")" * 500, "T = '" + "x" * reached.MODULE_BYTES_MAX + "'",
        ):  # fmt: skip
            told = self.told({**FILES, "main.py": MAIN + "\n" + line + "\n"})
            self.assertEqual(set(told.values()), {None}, line[:100])
            # Also in a module that is only imported.
            told = self.told({**FILES, "base.py": BASE + "\n" + line + "\n"})
            self.assertEqual(set(told.values()), {None}, line[:100])
        # What is not imported is a file as others are.
        self.assertTrue(all(self.told({**FILES, "apart.py": "eval('1')"}).values()))
        self.assertTrue(all(self.told({**FILES, "main.py": MAIN + "\nimport sys\nprint(sys.maxsize)\n"}).values()))

    def test_what_harmless_programs_do_is_no_reason(self):
        lines = ("URL = 'https://docs.python.org/3/'", "def g(dir, vars):\n    return dir", "from importlib.metadata import version", "import pickle",
                 "class A:\n    def g(self):\n        return self.__dict__", "import re\nre.compile('a')", "N = 'a.pyramid'")  # fmt: skip
        for line in lines:
            self.assertTrue(all(self.told({**FILES, "main.py": MAIN + "\n" + line + "\n"}).values()), line)
        # Words for people are none for programs.
        self.assertEqual(self.changed("README.md", "", "inner"), STEPS)
        told = {**FILES, "README.md": "first inner helpers base unit other"}
        edited = {**told, "base.py": BASE.replace("return 2", "return 3")}
        self.assertEqual(self.told(told), self.told(edited))
        # What a decorator of ours is told.
        decorated = {**FILES, "main.py": MAIN.replace("@function(pure=True)\ndef first", "@function(pure=True, retries=RATE)\ndef first")}
        edited = {**decorated, "main.py": decorated["main.py"].replace("return inner(x)", "return inner(-x)")}
        before, after = self.told(decorated), self.told(edited)
        self.assertEqual([name for name in STEPS if before[name] != after[name]], ["first"])

    def test_why_nothing_is_told(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "main.py").write_text("import helpers\ndef f(site):\n    return site\n")
            pathlib.Path(folder, "helpers.py").write_text("import os\nx = os.sys\n")
            self.assertEqual(reached.reached_by("main", "f", folder), (None, "in helpers.py it uses sys"))
            self.assertEqual(reached.reached_by("helpers", "f", folder), (None, "in helpers.py it uses sys"))
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "main.py").write_text('def f(site, inspect):\n    """As in main.py."""\n    return site\n')
            self.assertIsNone(reached.reached_by("main", "f", folder)[1])
            self.assertEqual(reached.reached_by("main", "g", folder), (None, "g is not at the top of a module of its own, main"))

    def test_bounds(self):
        self.assertEqual(set(self.told({**FILES, "large.bin": bytes(reached.FILES_BYTES_MAX + 1)}).values()), {None})
        many = {f"f{number}.txt": "" for number in range(reached.FILES_MAX + 1)}
        self.assertEqual(set(self.told({**FILES, **many}).values()), {None})
        text = "x = '" + "y" * (reached.MODULE_BYTES_MAX - 100) + "'\n"
        many = {f"m{number}.py": text + f"import m{number + 1}\n" for number in range(reached.MODULES_BYTES_MAX // len(text) + 2)}
        self.assertEqual(set(self.told({**FILES, **many, "kinds.py": KINDS + "import m0\n"}).values()), {None})
        self.assertEqual(self.told(FILES, ["nobody", "handler"])["nobody"], None)

    def test_what_is_no_file_is_not_waited_for(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "main.py").write_text("def f():\n    return 1\n")
            os.mkfifo(os.path.join(folder, "pipe"))
            os.symlink(folder, os.path.join(folder, "again"))
            self.assertTrue(reached.reached_by("main", "f", folder)[0])

    def test_threads_look_one_after_the_other(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in FILES.items():
                pathlib.Path(folder, name).write_text(text)
            alone = {name: reached.reached_by("main", name, folder) for name in STEPS}
            interval, told = sys.getswitchinterval(), []
            sys.setswitchinterval(1e-6)
            try:
                look = lambda name: told.extend((name, reached.reached_by("main", name, folder)) for _ in range(100))
                threads = [threading.Thread(target=look, args=(name,)) for name in STEPS]
                [thread.start() for thread in threads]
                [thread.join() for thread in threads]
            finally:
                sys.setswitchinterval(interval)
            self.assertEqual(len(told), 100 * len(STEPS))
            self.assertTrue(all(alone[name] == one for name, one in told))

    def test_what_modules_have_is_read_once(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in FILES.items():
                pathlib.Path(folder, name).write_text(text)
            first = [reached.reached_by("main", name, folder)[0] for name in STEPS]
            read, reached.read_file = reached.read_file, None
            try:
                self.assertEqual([reached.reached_by("main", name, folder)[0] for name in STEPS], first)
            finally:
                reached.read_file = read
            self.assertEqual(len(set(first)), len(STEPS))


if __name__ == "__main__":
    unittest.main()
