# SPDX-License-Identifier: Apache-2.0
# Workflows: functions whose calls of functions are steps (`docs/spec/workflows.md`). It is run
# before `function.py`, in the same module: names that are not defined here are that one's, those of
# `steps.py`, or the template's.
#
# In a workflow's own instance a call of a function gives a `Step`, which the node runs in an instance
# of that function; what it needs of other steps never comes here unless it is asked for. Everywhere
# else, also within a step, it is an ordinary call.

import copyreg
import io
import pickle
import weakref

# The longest result that a step may have, and what it begins with.
STEP_FRAME = b"\x02\0\0\0{}"
# The beginning of a value with buffers, and where those lie.
VALUE_HEAD, ALIGN = 17, 64
# What stands for a value that was given away.
GIVEN = 3
# A result that is longer is put into memory that is shared.
SHARED_BYTES_MIN = 256 << 10
# What an order is, and the longest arguments that it has: a call of a function is not much longer.
KIND, ARGUMENTS_MAX = "application/octet-stream", 15 << 20
# Steps are told to the node when there are so many, of so many bytes, or after a millisecond.
BATCH_STEPS, BATCH_BYTES, BATCH_PAUSE_S = 64, 1 << 20, 0.001
# What pure functions of the workflow depend on of its files, by their names (`reached.py`).
_codes, _reasons = {}, set()
# Of the request that is handled, if that is a run of a workflow.
_run = None


def current_run():
    """The run whose steps calls of functions are; of what `steps.py` has."""
    return _run


# Who tells of its steps, once there was one.
_teller = None
# In a step: the results of other steps that it was given, as they came, and those that were read.
_results, _values = (), {}


def workflow(body):
    """Marks the function that is a workflow, for those who read it: it is one by `workflow = true`."""
    body.__sinew_workflow__ = True
    return body


@function
def sent(value):
    """What is mapped, as a value that is sent: the node has it applied where a workflow itself asks for one."""
    return value


# ------------------------------------------------------------ the workflow


class Run:
    """A request to a workflow, and the steps that it has made."""

    def __init__(self):
        import threading

        self.lock = threading.Lock()
        # How many steps there are, and those of them that the node was not told of.
        self.made, self.batch, self.batch_bytes, self.options = 0, [], 0, {}
        # Of how many steps the node has said that all of them have ended well.
        self.settled = 0
        # Why the node did not take steps: nothing can be asked any more.
        self.broken = None

    def step(self, function, arguments, named):
        needs, sent, name = [], [], function._name()
        written = written_arguments((arguments, named), needs, sent, self, name)
        # Others need not wait while files are read.
        told_options(name, function._options)
        with self.lock:
            known = self.options.setdefault(name, function._options)
            if known != function._options:
                raise ValueError(f"{name} is run in two ways by one workflow; give the other one a name of its own")
            if len(written) > ARGUMENTS_MAX:
                why = f"an argument of {name} has {len(written)} bytes; what a workflow makes itself has {ARGUMENTS_MAX} at most"
                raise ValueError(f"{why}: have a step make it, and pass that step on")
            if self.batch_bytes + len(written) > ARGUMENTS_MAX:
                self.tell_locked()
            step = Step(self, name, self.made)
            self.made += 1
            self.batch.append((weakref.ref(step), name, needs, sent, written))
            self.batch_bytes += len(written)
            is_full = len(self.batch) >= BATCH_STEPS or self.batch_bytes >= BATCH_BYTES
        if is_full:
            self.tell()
        else:
            self.tell_soon()
        return step

    def tell_soon(self):
        """Whoever makes a step may have other things to do afterwards."""
        _teller.soon(self)

    def tell(self):
        """Tells the node of the steps that it does not know."""
        with self.lock:
            self.tell_locked()

    def tell_locked(self):
        if self.broken:
            raise self.broken
        if not self.batch:
            return
        steps = [step_told(*one) for one in self.batch]
        functions = {name: told_options(name, self.options[name]) for _, name, *_ in self.batch}
        head = json.dumps({"functions": functions, "steps": steps}).encode()
        parts = [len(head).to_bytes(4, "little"), head, *(written for *_, written in self.batch)]
        # What was not sent at all, as when too much is asked at the same time, is told the next time.
        told = ask("@steps", KIND, b"".join(parts))  # noqa: F821 - the template's
        self.batch, self.batch_bytes = [], 0
        try:
            answered(told)
        except Exception as error:
            self.broken = error
            raise

    def value(self, step, timeout):
        self.tell()
        question = {"step": step.number}
        if timeout is not None:
            question["wait_ms"] = max(0, round(timeout * 1000))
        told = ask("@value", KIND, json.dumps(question).encode())  # noqa: F821 - the template's
        body = answered(told, step.function, step.number)
        _, _, count = told[1].partition("settled=")
        self.settled = max(self.settled, int(count or 0))
        return read_value(body)

    def finish(self, result):
        """The workflow's result, with steps' results in their places, when all steps have ended."""
        self.tell()
        result = resolved(result)
        self.tell()
        if self.made > self.settled:
            answered(ask("@settle", KIND, b""))  # noqa: F821
        return result

    def close(self):
        """Of what it has not told until now, nobody shall hear: the next run may have begun."""
        with self.lock:
            self.batch, self.broken = [], self.broken or RuntimeError("this run is over")


class Teller:
    """Tells of steps while their workflow does something else. It is there for all runs: to begin a thread takes as long as
    a small step."""

    def __init__(self):
        import threading

        self.due, self.run = threading.Condition(), None
        threading.Thread(target=self.keep_telling, daemon=True).start()

    def soon(self, run):
        with self.due:
            self.run = run
            self.due.notify()

    def keep_telling(self):
        while True:
            with self.due:
                while self.run is None:
                    self.due.wait()
                run, self.run = self.run, None
            time.sleep(BATCH_PAUSE_S)
            try:
                run.tell()
            except Exception:
                # Whoever asks for anything next is told; what could not be sent is sent again.
                if run.batch and not run.broken:
                    self.soon(run)


def told_options(name, options):
    """How a function is run; if it is pure, with what it depends on of its files, which is looked for once."""
    if not options.get("pure") or "code" in options:
        return options
    if name not in _codes:
        _codes[name], why = reached_by(*name.rsplit(".", 1), app_root)  # noqa: F821 - `reached.py` and the template's
        if why and why not in _reasons:
            _reasons.add(why)
            print(f"sinew: pure steps such as {name} run again after every edit: {why}", file=sys.stderr)  # noqa: F821
    return {**options, "code": _codes[name]} if _codes[name] else options


def step_told(step, name, needs, sent, written):
    """What the node is told of a step: also whether nobody has it any more, so that only steps that it knows get the result."""
    told = {"function": name, "needs": needs, "bytes": len(written)}
    if sent:
        told["isolated"] = sent
    if step() is None:
        told["is_left"] = True
    return told


def answered(told, function=None, number=None):
    """What the node says to an order; how a step has failed is an exception."""
    status, kind, body = told
    if status < 400:
        return body
    problem = problem_of(kind, body)
    reason = problem.get("detail") or shown(body)
    if problem.get("type", "").endswith(":step-under-way"):
        raise TimeoutError(reason)
    if suggestion := problem.get("suggestion"):
        reason = f"{reason}; {suggestion}"
    if problem.get("type", "").endswith(":step-failed"):
        raise StepError(function, number, reason)
    raise RuntimeError(reason)


def in_run(handler):
    """A workflow: calls of functions are steps while it is called."""
    import functools

    @functools.wraps(handler)
    def run(*arguments):
        global _run, _teller
        _teller = _teller or Teller()
        _run = Run()
        try:
            result = handler(*arguments)
            is_coroutine = hasattr(result, "__await__") and not isinstance(result, Step)
            return _run.finish(awaited_here(result) if is_coroutine else result)
        finally:
            _run.close()
            _run = None

    return run


# ------------------------------------------------------------------ values


def result_of(box, what, given=None):
    """A step's result, the only item of the box: mapped where it is, or pickled. Then arrays and the like are not copied
    into it, but lie beside the rest; what is long is put where others can map it."""
    if (handed := hand_over(box, given)) is not None:  # noqa: F821 - the template's
        return STEP_FRAME + handed if isinstance(handed, bytes) else handed
    value, buffers, target = box.pop(), [], io.BytesIO()
    try:
        reducing(pickle.Pickler(target, 5, buffer_callback=buffers.append)).dump(value)  # noqa: F821 - the template's
    except (pickle.PicklingError, TypeError, AttributeError, RecursionError) as error:
        raise TypeError(f"{what} cannot be passed on: {error}") from None
    rest, views = target.getvalue(), [buffer.raw() for buffer in buffers]
    parts = laid_out(rest, views) if views else [STEP_FRAME, rest]
    if sum(len(part) for part in parts) >= SHARED_BYTES_MIN and (shared := share(parts)) is not None:  # noqa: F821
        return shared
    return b"".join(parts)


def laid_out(rest, views):
    """A value with buffers: how many there are, the length of the rest, where each buffer begins and how long it is, from
    the beginning of the value on; the rest, and the buffers, each at a multiple of 64 bytes of the whole."""
    head = len(STEP_FRAME)
    end = head + VALUE_HEAD + 16 * len(views) + len(rest)
    places, parts = [], [rest]
    for view in views:
        begin = (end + ALIGN - 1) // ALIGN * ALIGN
        parts += [bytes(begin - end), view]
        places += [begin - head, view.nbytes]
        end = begin + view.nbytes
    numbers = [len(views), len(rest), *places]
    return [STEP_FRAME, b"\x01", b"".join(number.to_bytes(8, "little") for number in numbers), *parts]


def written_arguments(arguments, needs, sent, run, name):
    """Arguments of a step; where they have other steps, these are named in `needs`, by the places there, and in `sent` if
    they are isolated."""
    places = {}

    def place_of(step):
        if step._run is not run:
            raise TypeError(f"{step!r} is of an earlier run")
        if step.number not in places:
            places[step.number] = len(needs)
            needs.append(step.number)
        return result_at, (places[step.number],)

    def isolated_place_of(isolated):
        sent.append(isolated.step.number)
        return place_of(isolated.step)

    table = {**copyreg.dispatch_table, Step: place_of, Isolated: isolated_place_of}
    return written(arguments, f"an argument of {name}", table)


def read_value(body):
    if body[0] == GIVEN:
        raise RuntimeError("this value was given to a step in the instance that made it, and is nowhere else")
    if body[0] != 1:
        return pickle.loads(body)
    # Who is given an array may write to it: what is mapped is its own, and else it is copied.
    body = memoryview(bytearray(body) if memoryview(body).readonly else body)
    numbers = memoryview(bytes(body[1:VALUE_HEAD])).cast("Q")
    count, length = numbers[0], numbers[1]
    at = VALUE_HEAD + 16 * count
    places = memoryview(bytes(body[VALUE_HEAD:at])).cast("Q")
    buffers = [body[places[place] : places[place] + places[place + 1]] for place in range(0, 2 * count, 2)]
    return pickle.loads(body[at : at + length], buffers=buffers)


def result_at(place):
    """In a step: the result of another one that is among its arguments."""
    if place not in _values:
        result = _results[place]
        # What is mapped knows how.
        is_mapped = hasattr(result, "value")
        _values[place] = result.value() if is_mapped else read_value(memoryview(result)[len(STEP_FRAME) :])
    return _values[place]


# Those of the workflow's functions that have followed another one here, by their names.
_steps = {}


def step_of(name):
    """The step that a function of the same code is, as `step_applied`."""
    if name not in _steps:
        module_name, attribute = parts_of(name)  # noqa: F821 - of function.py
        _steps[name] = step_applied(member(own_module(module_name), module_name, attribute), attribute)  # noqa: F821
    return _steps[name]


def step_applied(function, name):
    """A function from a step's arguments and the results of others to its result."""
    if not isinstance(function, Function):
        raise TypeError(f"{name} is a {kind_name(type(function))}, and no step: put @function before it")
    body = function.__wrapped__

    def apply(request, head, arguments, *results):
        global _results, _values
        _results, _values = results, {}
        marks = [time.monotonic_ns()]
        try:
            # Without arguments it is given the results themselves.
            # Positional and named ones; nothing else has them, for they may be what is returned.
            given = [*(read_value(arguments) if arguments else ([*map(result_at, range(len(results)))], {})), _values]
            marks.append(time.monotonic_ns())
            # Nobody else is to have it: then nothing needs to be left of it here.
            box = [body(*given[0], **given[1])]
            if hasattr(box[0], "__await__"):
                box[0] = awaited_here(box[0])
            marks.append(time.monotonic_ns())
            result = result_of(box, f"what {name} returned", given)
            if hasattr(result, "others"):
                result.others = given, _results
            return result
        except BaseException as error:
            raise users_part(error)  # noqa: B904
        finally:
            tell_phases([*marks, time.monotonic_ns()])  # noqa: F821 - the template's
            _results, _values = (), {}

    return apply
