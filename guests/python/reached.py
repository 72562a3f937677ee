# SPDX-License-Identifier: Apache-2.0
# What the result of a pure step can depend on besides its arguments: of the function's own files what its code reaches
# (`docs/spec/workflows.md`, section 2; decision 0112). It is run before `workflow.py`, in the same module.
#
# An edit that changes none of that leaves the results of before what they are. Files are looked at as text, and nothing of
# them is run. All of them count for every function, but for what stands in those at the top that nothing else can lead to:
# these count for functions that use them by their names. Where code may reach what it does not name, nothing is told, and
# then everything counts.

import threading

# Bytes of one module and of all, of files that are no modules, and how many files there are.
MODULE_BYTES_MAX, MODULES_BYTES_MAX, FILES_BYTES_MAX, FILES_MAX = 256 << 10, 512 << 10, 4 << 20, 1000
# With these code reaches what it does not name: names, modules, what other things have, and what these modules have.
HIDDEN = {
    "eval", "exec", "compile", "globals", "locals", "vars", "dir", "__import__", "__builtins__", "__spec__", "__loader__", "__path__",
    "__annotations__",
}  # fmt: skip
HIDDEN_MODULES = {
    "builtins", "gc", "imp", "importlib", "inspect", "pkgutil", "ply", "pty", "pydoc", "runpy", "site", "subprocess", "zipimport",
}  # fmt: skip
HIDDEN_ATTRIBUTES = {
    "__globals__", "__dict__", "__code__", "__closure__", "__subclasses__", "__builtins__", "__path__", "f_globals", "f_locals",
    "gi_frame", "cr_frame", "tb_frame", "sys", "importlib", "import_module", "__import__", "_getframe", "meta_path", "path_hooks",
    "addsitedir", "create_subprocess_exec", "create_subprocess_shell", "posix_spawn",
}  # fmt: skip
HIDDEN_OF = {
    "sys": {"modules", "path", "path_importer_cache", "executable"},
    "os": {"system", "popen", "execv", "execve", "execvp", "execl", "execlp", "spawnv", "spawnl", "spawnlp", "spawnvp"},
}  # fmt: skip
# Where these are, the modules count as they are written: they may be read, or it may be told at which line something is.
READS = {"__file__", "listdir", "walk", "iterdir", "glob", "rglob", "scandir", "tb_lineno", "lineno", "co_firstlineno", "traceback"}
# Who finds functions by their names in files that cannot be read here.
UNPACKS = {"pickle", "joblib", "dill", "cloudpickle", "shelve", "marshal", "torch"}
# What a step's function has that is no use of it as a value.
STEP_METHODS = {"map", "options"}
# Who decorates functions and keeps nothing of them.
DECORATORS = {"sinew", "functools", "contextlib"}
# Files that are for people, in which words are words; and what says how functions are run, which is in their names.
FOR_PEOPLE, MANIFEST = (".md", ".rst", "LICENSE"), "sinew.toml"

# What was found of a function's files: they do not change while a process has them. One thread looks at a time.
_reaches, _reaching = {}, threading.Lock()


class Unseen(Exception):
    """Code may depend on more than can be told."""


class Use:
    """A name that is used: called, or something that it has is called; or another thing that it has; or as a value."""

    __slots__ = ("attribute", "is_called", "name")

    def __init__(self, name, attribute, is_called):
        self.name, self.attribute, self.is_called = name, attribute, is_called


class Statement:
    """A statement at the top of a module: its text, what it binds, uses, imports, and which words are in its texts."""

    def __init__(self, node):
        import ast

        self.digest = digest_of(ast.dump(node))
        self.is_import = isinstance(node, (ast.Import, ast.ImportFrom))
        self.function = node.name if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) else None
        # What nothing is done for but to give it to a name.
        self.quiet = self.function or constant_of(node)
        self.imports, self.uses, self.words, self.marks, self.is_at_work = [], [], set(), set(), False
        self.binds = {self.function} if self.function else set()
        self.decorators = [use.id for each in getattr(node, "decorator_list", ()) for use in ast.walk(each) if isinstance(use, ast.Name)]
        if self.function:
            told = [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]
            kinds = (ast.Name, ast.Attribute, ast.Constant, ast.Tuple, ast.UnaryOp, ast.unaryop, ast.expr_context)
            self.is_at_work = not all(isinstance(each, kinds) for part in told for each in ast.walk(part))
        self.read(node)

    def read(self, top):
        import ast

        called, bases, uses = set(), {}, {}
        nodes = list(ast.walk(top))
        texts = {id(node.value) for node in nodes if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
        own = {node.arg for node in nodes if isinstance(node, ast.arg)}
        if self.function:
            own |= {node.id for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
        for node in nodes:
            if isinstance(node, ast.Call):
                called.add(id(node.func))
            elif isinstance(node, ast.Attribute):
                is_of_self = node.attr == "__dict__" and isinstance(node.value, ast.Name) and node.value.id == "self"
                if node.attr in HIDDEN_ATTRIBUTES and not is_of_self:
                    raise Unseen(f"it uses {node.attr}")
                self.marks |= {node.attr} & READS
                bases[id(node.value)] = node.attr, id(node) in called
            elif isinstance(node, ast.Name):
                attribute, is_called = bases.get(id(node), (None, id(node) in called))
                hidden = HIDDEN_OF.get(node.id, ())
                if (node.id in HIDDEN and node.id not in own) or attribute in hidden or (node.id == "sys" and attribute is None):
                    raise Unseen(f"it uses {node.id}{'.' + attribute if attribute else ''}")
                self.marks |= {node.id} & READS
                uses[node.id, attribute, is_called] = Use(node.id, attribute, is_called)
                if isinstance(node.ctx, ast.Store) and not self.function:
                    self.binds.add(node.id)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)) and not self.function:
                self.binds.add(node.name)
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                self.imports.append(node)
                self.check_import(node)
                if not self.function:
                    self.binds.update(local_name(node, alias) for alias in node.names)
            elif isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)) and id(node) not in texts:
                if isinstance(node.value, str) and names_module_file(node.value):
                    raise Unseen(f"it may read {node.value[:100]}")
                self.words |= words_in(node.value)
        self.uses = list(uses.values())

    def check_import(self, node):
        for alias in node.names:
            module = getattr(node, "module", None) or ""
            of = {(module or alias.name).partition(".")[0]}
            is_known = "importlib.metadata" in (module, alias.name)
            is_renamed = "sys" in of and (module or alias.asname)
            if (of & HIDDEN_MODULES and not is_known) or alias.name == "*" or is_renamed or alias.name in HIDDEN_OF.get(module, ()):
                raise Unseen(f"it imports {alias.name}")
            if alias.asname and alias.name in HIDDEN_OF:
                raise Unseen(f"it imports {alias.name} by another name")
            self.marks |= (of | {alias.name}) & (READS | UNPACKS)

    def uses_only_by_calls(self, name):
        return all(use.is_called for use in self.uses if use.name == name)


def constant_of(node):
    """The name of a constant, if that is what the statement makes: a literal that nobody can change."""
    import ast

    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        target, calls = node.targets[0], False
    elif isinstance(node, ast.AnnAssign) and node.value is not None:
        target, calls = node.target, any(isinstance(each, (ast.Call, ast.NamedExpr)) for each in ast.walk(node.annotation))
    else:
        return None
    kinds = (ast.Constant, ast.Tuple, ast.UnaryOp, ast.unaryop, ast.expr_context)
    is_literal = all(isinstance(each, kinds) for each in ast.walk(node.value))
    # Within a class, a name with two of these may be another one.
    is_plain = isinstance(target, ast.Name) and "__" not in target.id
    return target.id if is_plain and is_literal and not calls else None


def local_name(node, alias):
    """What an import binds."""
    return alias.asname or (alias.name if hasattr(node, "module") else alias.name.partition(".")[0])


def digest_of(data):
    import hashlib

    return hashlib.sha256(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data).digest()


def words_in(text):
    """Names that stand in a text, or in bytes."""
    import re

    if isinstance(text, str):
        return set(re.findall(r"[^\W\d]\w*", text))
    words = set(re.findall(rb"[A-Za-z_\x80-\xff][A-Za-z0-9_\x80-\xff]*", text))
    return {word.decode("utf-8", "surrogateescape") for word in words}


def names_module_file(text):
    import re

    return re.search(r"\.py[cwz]?(?!\w)", text) is not None and not re.match(r"https?://\S+$", text)


class Source:
    """A module of the function's."""

    def __init__(self, name, data, is_package):
        import ast

        self.name, self.package = name, name if is_package else name.rpartition(".")[0]
        top = ast.parse(data).body
        self.statements = [Statement(node) for place, node in enumerate(top) if place == 0 or not is_nothing(node)]
        self.binders = {}
        for number, statement in enumerate(self.statements):
            for bound in statement.binds:
                self.binders.setdefault(bound, []).append(number)
        self.written = digest_of(data)


def is_nothing(node):
    """Whether it does nothing in a module that is imported."""
    import ast

    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Constant)
    is_if = isinstance(node, ast.If) and not node.orelse and isinstance(node.test, ast.Compare)
    return is_if and ast.dump(node.test) == ast.dump(ast.parse('__name__ == "__main__"').body[0].value)


class Sources:
    """The function's modules, as they are needed."""

    def __init__(self, root):
        self.root, self.known, self.left = root, {}, MODULES_BYTES_MAX

    def get(self, name):
        """A module; `None` where it is none of the function's own."""
        if name not in self.known:
            self.known[name] = self.read(name)
        return self.known[name]

    def read(self, name):
        base = os.path.join(self.root, *name.split("."))
        for path, is_package in ((os.path.join(base, "__init__.py"), True), (base + ".py", False)):
            if os.path.lexists(path):
                data = read_file(path, min(MODULE_BYTES_MAX, self.left))
                self.left -= len(data)
                try:
                    return Source(name, data, is_package)
                except Unseen as why:
                    raise Unseen(f"in {os.path.relpath(path, self.root)} {why}") from None
        # A package without code, or somebody else's.
        return Source(name, b"", True) if os.path.isdir(base) else None

    def imported(self, source, node):
        """What an import brings of the function's own: modules, each with the name of which it brings something, with `None` for
        all of it, or with nothing if it is only loaded."""
        if not hasattr(node, "module"):
            return [(part, None) for alias in node.names for part in prefixes(alias.name) if self.get(part)]
        found = []
        base = self.base(source, node)
        if base:
            found += [(part, "") for part in prefixes(base) if self.get(part)]
        for alias in node.names:
            of, whole = self.get(base) if base else None, f"{base}.{alias.name}" if base else alias.name
            is_bound = of is not None and alias.name in of.binders and "__getattr__" not in of.binders
            # What has the name may be the module that is below.
            if self.get(whole):
                found.append((whole, None))
            if is_bound:
                found.append((base, alias.name))
            elif of and (not self.get(whole) or "__getattr__" in of.binders):
                found.append((base, None))
        return found

    def base(self, source, node):
        if not node.level:
            return node.module
        parts = source.package.split(".") if source.package else []
        if node.level - 1 > len(parts):
            raise Unseen("an import leads out of its package")
        above = parts[: len(parts) - node.level + 1]
        return ".".join([*above, *([node.module] if node.module else [])])


def prefixes(name):
    """`a`, `a.b` and `a.b.c` of `a.b.c`."""
    parts = name.split(".")
    return [".".join(parts[: count + 1]) for count in range(len(parts))]


def is_text(data):
    try:
        return b"\0" not in data and data.decode() is not None
    except UnicodeDecodeError:
        return False


def read_file(path, most):
    """What is in a file of at most so many bytes."""
    with open(path, "rb", opener=lambda path, flags: os.open(path, flags | os.O_NONBLOCK)) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise Unseen(f"{path} is longer than what is read for this")
    return data


class Reach:
    """What the functions of a module reach, and what counts for all of them."""

    def __init__(self, root, first):
        self.sources, self.followed, self.left, self.values, self.wholes = Sources(root), set(), [], set(), set()
        self.modules = self.loaded_with(first)
        statements = [statement for module in self.modules for statement in self.sources.get(module).statements]
        self.marks = set().union(*(statement.marks for statement in statements))
        said = set().union(*(statement.words for statement in statements))
        words, self.files = self.files_of(root, reads_manifest="toml" in said)
        for module in sorted(self.modules):
            for number, statement in enumerate(self.sources.get(module).statements):
                self.take_for_all(module, number, statement)
        self.take_named(said, words)
        self.follow()

    def loaded_with(self, first):
        names, left = set(), [part for part in prefixes(first) if self.sources.get(part)]
        while left:
            name = left.pop()
            if name in names:
                continue
            names.add(name)
            source = self.sources.get(name)
            for statement in source.statements:
                for node in statement.imports:
                    left += [module for module, _ in self.sources.imported(source, node)]
        return names

    def files_of(self, root, reads_manifest):
        """The words in all files that are no modules that are loaded, and what stands for these files: any code may read them."""
        own = {os.path.join(root, *name.split(".")) + ".py" for name in self.modules}
        own |= {os.path.join(root, *name.split("."), "__init__.py") for name in self.modules}
        words, parts, left, unpacks = set(), [], FILES_BYTES_MAX, self.marks & UNPACKS
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(each for each in folders if each != "__pycache__")
            for name in sorted([*names, *(each for each in folders if os.path.islink(os.path.join(folder, each)))]):
                path = os.path.join(folder, name)
                place = os.path.relpath(path, root)
                if path in own or (place == MANIFEST and not reads_manifest):
                    continue
                if len(parts) >= FILES_MAX:
                    raise Unseen("it has more files than are read for this")
                data = os.readlink(path).encode() if os.path.islink(path) else read_file(path, left)
                left -= len(data)
                if unpacks and not is_text(data):
                    raise Unseen(f"{unpacks.pop()} may find functions by their names in {place}")
                if not name.endswith(FOR_PEOPLE):
                    words |= words_in(data)
                parts.append(digest_of(place) + digest_of(data))
        return words, digest_of(b"".join(parts))

    def take_for_all(self, module, number, statement):
        """What a statement means for all functions: what is done when its module is loaded is all of theirs; of a function of which
        nothing else knows, only what it leads others to."""
        source = self.sources.get(module)
        if not statement.is_import and (not statement.quiet or self.is_known_to_others(source, statement)):
            self.left.append((module, number))
        for use in statement.uses:
            if not use.is_called:
                self.take_value(module, use.name, use.attribute)
        for node in statement.imports if not statement.is_import else ():
            # What it calls here is reached by whoever reaches this; what it hands on may be anybody's.
            if not all(statement.uses_only_by_calls(local_name(node, alias)) for alias in node.names):
                self.take_brought(source, node, None)

    def is_known_to_others(self, source, statement):
        return statement.is_at_work or any(not self.is_from(source, name) for name in statement.decorators)

    def is_from(self, source, name):
        """Whether a name is what one of `DECORATORS` has, or a constant that it is told."""
        binders = [source.statements[number] for number in source.binders.get(name, ())]
        if binders and all(binder.quiet and not binder.function for binder in binders):
            return True
        nodes = [node for binder in binders for node in binder.imports]
        tops = {(getattr(node, "module", None) or node.names[0].name).partition(".")[0] for node in nodes}
        is_own = any(self.sources.imported(source, node) or getattr(node, "level", 0) for node in nodes)
        return bool(tops) and tops <= DECORATORS and not is_own and all(binder.is_import for binder in binders)

    def take_named(self, said, words):
        """Words in texts, and in files, that may be names of something, or, in texts, of modules."""
        for module in self.modules:
            if not said.isdisjoint(module.split(".")):
                self.take_whole(module)
            for name in (said | words) & self.sources.get(module).binders.keys():
                self.take(module, name)
                self.take_value(module, name, None)

    def take_value(self, module, name, attribute):
        """A name is used as a value, or something that it has: a function that it leads to may be called by anybody."""
        if (module, name, attribute) in self.values:
            return
        self.values.add((module, name, attribute))
        source = self.sources.get(module)
        for number in source.binders.get(name, ()):
            statement = source.statements[number]
            if statement.function and attribute not in STEP_METHODS:
                self.left.append((module, number))
            for node in statement.imports if statement.is_import else ():
                if any(local_name(node, alias) == name for alias in node.names):
                    self.take_brought(source, node, attribute)

    def take_brought(self, source, node, attribute):
        for module, name in self.sources.imported(source, node):
            if name is None:
                self.take_whole(module)
            elif name:
                self.take_value(module, name, attribute)

    def take_whole(self, module):
        """A module, and those below it: they are what it has."""
        if module in self.wholes:
            return
        self.wholes.add(module)
        for other in self.modules:
            if other == module or other.startswith(module + "."):
                self.left += [(other, number) for number in range(len(self.sources.get(other).statements))]

    def take(self, module, name):
        """All that gives this name its value."""
        source = self.sources.get(module)
        self.left += [(module, number) for number in source.binders.get(name, ())]

    def follow(self):
        """Goes on from what was taken to all that it reaches."""
        while self.left:
            module, number = self.left.pop()
            if (module, number) in self.followed:
                continue
            self.followed.add((module, number))
            source = self.sources.get(module)
            statement = source.statements[number]
            for use in statement.uses:
                self.take(module, use.name)
            for node in statement.imports:
                for other, name in self.sources.imported(source, node):
                    if name is None:
                        self.take_whole(other)
                    elif name:
                        self.take(other, name)

    def digest(self, module, name):
        """What stands for all that a function reaches."""
        if module not in self.modules or name not in self.sources.get(module).binders:
            raise Unseen(f"{name} is not at the top of a module of its own, {module}")
        before = set(self.followed), set(self.wholes)
        try:
            self.take(module, name)
            self.follow()
            parts = [repr(sys.version_info).encode(), self.files]
            for other in sorted(self.modules):
                source = self.sources.get(other)
                parts += [digest_of(other), source.written if self.marks & READS else b""]
                for number, statement in enumerate(source.statements):
                    # Also in which order modules are loaded.
                    if (other, number) in self.followed or statement.is_import:
                        parts.append(statement.digest)
            return digest_of(b"".join(parts)).hex()
        finally:
            (self.followed, self.wholes), self.left = before, []


def reached_by(module, name, root):
    """What stands for all of its own files that a function can depend on: 64 hexadecimal digits, or nothing where it cannot be
    told, so that all of them count; and then why."""
    with _reaching:
        # Whatever there may be in somebody's files, it is no reason not to run.
        try:
            return reach_of(module, root).digest(module, name), None
        except Unseen as why:
            return None, str(why)
        except Exception as error:
            return None, f"{type(error).__name__}: {error}"


def reach_of(module, root):
    """What the functions of a module reach, which is looked for once."""
    key = module, root
    if key not in _reaches:
        try:
            _reaches[key] = Reach(root, module)
        except Exception as error:
            # Its words alone: it holds all that it was raised in.
            _reaches[key] = str(error) if isinstance(error, Unseen) else f"{type(error).__name__}: {error}"
    reach = _reaches[key]
    if isinstance(reach, str):
        raise Unseen(reach)
    return reach
