# SPDX-License-Identifier: Apache-2.0
# What the result of a pure step can depend on besides its arguments: of the function's own files what its code reaches
# (`docs/spec/workflows.md`, section 2; decision 0112). It is run before `workflow.py`, in the same module.
#
# An edit that changes none of that leaves the results of before what they are. Files are looked at as text, and nothing of
# them is run. All of them count for every function, but for what stands in those at the top that nothing else can lead to:
# these count for functions that use them by their names. Where code may reach what it does not name, nothing is told, and
# then everything counts.

# Bytes of one module and of all, of files that are no modules, and how many files there are.
MODULE_BYTES_MAX, MODULES_BYTES_MAX, FILES_BYTES_MAX, FILES_MAX = 256 << 10, 1 << 20, 4 << 20, 1000
# With these code reaches what it does not name: names, modules, and what other things have.
HIDDEN = {
    "eval", "exec", "compile", "globals", "locals", "vars", "dir", "__import__", "__builtins__", "__spec__", "__loader__", "__path__",
    "__annotations__",
}  # fmt: skip
HIDDEN_MODULES = {
    "builtins", "gc", "imp", "importlib", "inspect", "pkgutil", "pydoc", "runpy", "site", "subprocess", "zipimport",
}  # fmt: skip
HIDDEN_ATTRIBUTES = {
    "__globals__", "__dict__", "__code__", "__closure__", "__subclasses__", "__builtins__", "__path__", "f_globals", "f_locals",
    "gi_frame", "cr_frame", "tb_frame", "sys", "importlib", "import_module", "__import__", "_getframe", "meta_path", "path_hooks",
    "addsitedir",
}  # fmt: skip
HIDDEN_OF_SYS = {"modules", "path", "path_importer_cache", "executable"}
# What a step's function has that is no use of it as a value.
STEP_METHODS = {"map", "options"}
# Who decorates functions and keeps nothing of them.
DECORATORS = {"sinew", "functools", "contextlib"}
# Files that no code reads: what they say of a function is part of what it is.
NOT_READ = {"sinew.toml"}

# What was found of a function's files: they do not change while a process has them.
_reaches = {}


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
        self.imports, self.uses, self.words, self.is_at_work = [], [], set(), False
        self.binds = {self.function} if self.function else set()
        self.decorators = [use.id for each in getattr(node, "decorator_list", ()) for use in ast.walk(each) if isinstance(use, ast.Name)]
        if self.function:
            # Of these only names, constants and calls of decorators are left alone.
            told = [*node.args.defaults, *(each for each in node.args.kw_defaults if each is not None)]
            self.is_at_work = any(isinstance(each, (ast.Call, ast.NamedExpr, ast.Await)) for part in told for each in ast.walk(part))
        self.read(node)

    def read(self, top):
        import ast

        called, bases, uses = set(), {}, {}
        texts = {id(node.value) for node in ast.walk(top) if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)}
        for node in ast.walk(top):
            if isinstance(node, ast.Call):
                called.add(id(node.func))
            elif isinstance(node, ast.Attribute):
                if node.attr in HIDDEN_ATTRIBUTES:
                    raise Unseen(f"it uses {node.attr}")
                bases[id(node.value)] = node.attr, id(node) in called
            elif isinstance(node, ast.Name):
                attribute, is_called = bases.get(id(node), (None, id(node) in called))
                if node.id in HIDDEN or (node.id == "sys" and (attribute is None or attribute in HIDDEN_OF_SYS)):
                    raise Unseen(f"it uses {node.id}{'.' + attribute if attribute else ''}")
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
            elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
                if ".py" in node.value:
                    raise Unseen(f"it may read {node.value[:100]}")
                self.words.update(words_in(node.value))
        self.uses = list(uses.values())

    def check_import(self, node):
        for alias in node.names:
            of = {alias.name.partition(".")[0], (getattr(node, "module", None) or "").partition(".")[0]}
            if of & HIDDEN_MODULES or alias.name == "*" or ("sys" in of and (hasattr(node, "module") or alias.asname)):
                raise Unseen(f"it imports {alias.name}")

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
    is_plain = isinstance(target, ast.Name) and not target.id.startswith("_")
    return target.id if is_plain and is_literal and not calls else None


def local_name(node, alias):
    """What an import binds."""
    return alias.asname or (alias.name if hasattr(node, "module") else alias.name.partition(".")[0])


def digest_of(data):
    import hashlib

    return hashlib.sha256(data.encode("utf-8", "surrogatepass") if isinstance(data, str) else data).digest()


def words_in(text):
    import re

    return re.findall(r"[^\W\d]\w*" if isinstance(text, str) else rb"[A-Za-z_][A-Za-z0-9_]*", text)


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
        # One that knows its file may read it.
        is_itself = any(use.name == "__file__" for statement in self.statements for use in statement.uses)
        self.itself = digest_of(data) if is_itself else b""


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
            if of and alias.name in of.binders:
                found.append((base, alias.name))
            elif self.get(whole):
                found.append((whole, None))
            elif of:
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
        self.sources, self.followed, self.left, self.values = Sources(root), set(), [], set()
        self.modules = self.loaded_with(first)
        self.words, self.files = self.files_of(root)
        for module in sorted(self.modules):
            for number, statement in enumerate(self.sources.get(module).statements):
                self.take_for_all(module, number, statement)
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

    def files_of(self, root):
        """The words in all files that are no modules that are loaded, and what stands for these files: any code may read them."""
        own = {os.path.join(root, *name.split(".")) + ".py" for name in self.modules}
        own |= {os.path.join(root, *name.split("."), "__init__.py") for name in self.modules}
        words, parts, left = set(), [], FILES_BYTES_MAX
        for folder, folders, names in os.walk(root):
            folders[:] = sorted(each for each in folders if each != "__pycache__")
            for name in sorted([*names, *(each for each in folders if os.path.islink(os.path.join(folder, each)))]):
                path = os.path.join(folder, name)
                place = os.path.relpath(path, root)
                if path in own or place in NOT_READ:
                    continue
                if len(parts) >= FILES_MAX:
                    raise Unseen("it has more files than are read for this")
                data = os.readlink(path).encode() if os.path.islink(path) else read_file(path, left)
                left -= len(data)
                words.update(words_in(data))
                parts.append(digest_of(place) + digest_of(data))
        return {word.decode() for word in words}, digest_of(b"".join(parts))

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
        for word in statement.words:
            self.take_named(word)

    def is_known_to_others(self, source, statement):
        if statement.is_at_work or statement.quiet in self.words:
            return True
        return any(not self.is_from(source, name) for name in statement.decorators)

    def is_from(self, source, name):
        """Whether a name is what one of `DECORATORS` has."""
        binders = [source.statements[number] for number in source.binders.get(name, ())]
        nodes = [node for binder in binders for node in binder.imports]
        tops = {(getattr(node, "module", None) or node.names[0].name).partition(".")[0] for node in nodes}
        is_own = any(self.sources.imported(source, node) or getattr(node, "level", 0) for node in nodes)
        return bool(tops) and tops <= DECORATORS and not is_own and all(binder.is_import for binder in binders)

    def take_named(self, word):
        """A text has a word that may be the name of something."""
        for module in self.modules:
            source = self.sources.get(module)
            self.left += [(module, number) for number in source.binders.get(word, ()) if source.statements[number].quiet]

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
        before = set(self.followed)
        try:
            self.take(module, name)
            self.follow()
            parts = [repr(sys.version_info).encode(), self.files]
            for other in sorted(self.modules):
                source = self.sources.get(other)
                parts += [digest_of(other), source.itself]
                for number, statement in enumerate(source.statements):
                    # Also in which order modules are loaded.
                    if (other, number) in self.followed or statement.is_import:
                        parts.append(statement.digest)
            return digest_of(b"".join(parts)).hex()
        finally:
            self.followed, self.left = before, []


def reached_by(module, name, root):
    """What stands for all of its own files that a function can depend on: 64 hexadecimal digits, or nothing where it cannot be
    told, so that all of them count; and then why."""
    key = module, root
    # Whatever there may be in somebody's files, it is no reason not to run.
    try:
        if key not in _reaches:
            _reaches[key] = Unseen("it is looked for already")
            _reaches[key] = Reach(root, module)
    except Exception as error:
        # Another one, without what it was raised in.
        _reaches[key] = Unseen(str(error) if isinstance(error, Unseen) else f"{type(error).__name__}: {error}")
    reach = _reaches[key]
    if isinstance(reach, Unseen):
        return None, str(reach)
    if name not in reach.sources.get(module).binders:
        return None, f"{module} has no {name} at its top"
    return reach.digest(module, name), None
