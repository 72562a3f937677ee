# SPDX-License-Identifier: Apache-2.0
# What is told of an exception. It is run before `template.py`, in the same module: names that are not
# defined here are that one's.


# Of a stack, as deep as anybody's is.
FRAMES_MAX = 1000
# Of those that run at the same time.
PLACES_TOLD = 20
# The name of a task that is the adapter's, and no call's.
OWN_TASK = "sinew"
# On which an instance says where it is: none that anybody else has a use for.
WHERE_SIGNAL = 62


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


def frames_up_from(frame):
    """Where a call's thread is: outermost first, without what has begun the call."""
    frames = []
    while frame is not None and len(frames) < FRAMES_MAX:
        frames.append(frame)
        frame = frame.f_back
    own = [at for at, frame in enumerate(frames) if is_own(frame)]
    return frames[: own[-1] if own else None][::-1]


def told_frames(frames):
    """Lines that say where that is in the function, without what is not its own."""
    shown = [(frame, frame.f_lineno) for frame in frames if not is_own(frame) and frame.f_code.co_filename != "function.py"]
    # Nor how an event loop came to run it.
    while shown and shown[0][0].f_globals.get("__name__", "").partition(".")[0] == "asyncio":
        del shown[0]
    return "".join(traceback.StackSummary.extract(shown, limit=-16).format())


def told_place(frame):
    """The same of what runs in a thread, or of what its event loop waits for."""
    asyncio = sys.modules.get("asyncio")
    loop = asyncio and asyncio._get_running_loop()
    if loop is None or asyncio.current_task(loop) is not None:
        return told_frames(frames_up_from(frame))
    # Those of the adapter's own are named.
    tasks = [task for task in asyncio.all_tasks(loop) if task.get_name() != OWN_TASK]
    tasks.sort(key=lambda task: (len(task.get_name()), task.get_name()))
    places = [(task.get_name(), place) for task in tasks if (place := told_frames(frames_of_task(task)))]
    return places[0][1] if len(places) == 1 else "".join(f"{name}:\n{place}" for name, place in places[:PLACES_TOLD])


def shortened(told):
    return told if len(told) <= TEXT_BYTES_MAX else told[: TEXT_BYTES_MAX // 4] + "\n…\n".encode() + told[-TEXT_BYTES_MAX // 2 :]


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


def failure_parts(error):
    """Type, message and traceback as frames have them, each behind its length."""
    try:
        parts = describe(error)
    except BaseException:
        parts = ["Exception", "an exception that cannot be described", ""]
    texts = [part.encode("utf-8", "backslashreplace")[:TEXT_BYTES_MAX] for part in parts]  # noqa: F821 - of template.py
    # What is cut may end inside a character; the other side replaces it.
    return [piece for text in texts for piece in (struct.pack("<I", len(text)), text)]  # noqa: F821
