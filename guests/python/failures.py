# SPDX-License-Identifier: Apache-2.0
# What is told of an exception. It is run before `template.py`, in the same module: names that are not
# defined here are that one's.


# Of a stack, as deep as anybody's is.
FRAMES_MAX = 1000


def kind_name(kind):
    return kind.__qualname__ if kind.__module__ in ("builtins", None) else f"{kind.__module__}.{kind.__qualname__}"


def is_own(frame):
    return frame.f_code.co_filename == OWN_FILE or "__tracebackhide__" in frame.f_globals


def without_own(trace):
    others = []
    while trace:
        if not is_own(trace.tb_frame):
            others.append(trace)
        trace = trace.tb_next
    for other in reversed(others):
        trace = types.TracebackType(trace, other.tb_frame, other.tb_lasti, other.tb_lineno)
    return trace


def frames_of_task(task):
    """Where a task waits: outermost first."""
    waits, frames = task.get_coro(), []
    while waits is not None and len(frames) < FRAMES_MAX:
        prefix = next((prefix for prefix in ("cr", "gi", "ag") if hasattr(waits, f"{prefix}_frame")), None)
        if prefix is None:
            break
        frames.append(getattr(waits, f"{prefix}_frame"))
        waits = getattr(waits, "gi_yieldfrom" if prefix == "gi" else f"{prefix}_await")
    return [frame for frame in frames if frame is not None]


def frames_of_thread(ident):
    """Where a thread of a call is: outermost first, without what has begun the call."""
    frame, frames = sys._current_frames().get(ident), []
    while frame is not None and len(frames) < FRAMES_MAX:
        frames.append(frame)
        frame = frame.f_back
    own = [at for at, frame in enumerate(frames) if is_own(frame)]
    return frames[: own[-1] if own else None][::-1]


def told_frames(frames):
    """Lines that say where that is in the function, without what is not its own."""
    shown = [(frame, frame.f_lineno) for frame in frames if not is_own(frame) and frame.f_code.co_filename != "function.py"]
    return "".join(traceback.StackSummary.extract(shown, limit=-16).format())


def describe(error):
    """Type, message and traceback, without the frames of this file and of the
    adapter that it loaded (`function.py`)."""
    trace = without_own(error.__traceback__)
    lines = traceback.format_exception(type(error), error.with_traceback(trace), trace, limit=-16)
    is_told = trace is None and error.__cause__ is None and error.__context__ is None
    # Where nothing of the user's was under way, there is nothing to tell but the message.
    text = "" if is_told else "".join(lines)
    if len(text) > TEXT_BYTES_MAX:
        text = text[: TEXT_BYTES_MAX // 4] + "\n…\n" + text[-TEXT_BYTES_MAX // 2 :]
    return [kind_name(type(error)), str(error)[:TEXT_BYTES_MAX], text]
