# SPDX-License-Identifier: Apache-2.0
# Values that are mapped where they were made, instead of being sent (guests/heap). It is run before
# `template.py`, in the same module: names that are not defined here are that one's.

import copyreg
import pickle

# Values whose pickle is shorter than this are sent: to map one takes longer.
MAPPED_BYTES_MIN = 64 << 10
# Containers with one element for so many bytes of that are not pickled to find out.
BYTES_OF_AN_ITEM = 4
HEAD_BYTES = 512
# What could not be written the last time, is tried again after so many times; and kinds of values that are remembered.
TRIED_AGAIN, KINDS_MAX = 32, 1024
# If it took longer to find out that a value is not small, its kind is not asked about again.
TRIAL_NS_MAX = 200_000
LARGE = -1
# Of its memory, what a process has of mapped values before it is touched.
PREFETCH_SHARE = 8
# Of its memory, what may be in values that it has handed over.
HANDED_SHARE = 4
# Values that one process maps: what it has mapped, it keeps.
MAPPED_MAX = 256
# Where the template finds out whether all is where it is thought to be; nothing else is ever mapped there.
PROBE_BASE, PROBE_BYTES = 0x4FFFFFF00000, 1 << 20
KIND_AT, KIND_MAPPED = 6, 2
# As in segment.h.
TAKES_SMALL, TAKES_LARGE, TAKES_LIBRARY = 1, 2, 4
# What a call makes is better made elsewhere if less than this share of it is handed over: of small objects, of which each would be
# copied by itself, and of large ones, for which there is memory of the call before (rest.py). Less than so many bytes is not judged;
# and it is tried again after so many calls, twice as many each time.
KEPT_SMALL, KEPT_LARGE, WASTE_MIN = 1 / 3, 2 / 5, 1 << 20
PAUSE, PAUSE_MAX = 16, 128
# After so many small results in a row nothing is made for a long one; the first that comes is sent.
SMALL_IN_A_ROW = 8
# In the place of a value that was given to the step that follows (`docs/spec/workflows.md`, section 4).
GIVEN = b"\x03"


class TooLong(Exception):
    """A pickle is so long that the value is better mapped."""


class Handed:
    """A result that is in the segment of its call. Whoever takes it need not wait until the original has ended, nor what the call
    was given: code of the function's may run at the end of that, which must not find what others have."""

    def __init__(self, length, box):
        self.length, self.box, self.others = length, box, None


class Unmappable(OSError):
    """What was handed over cannot be mapped in this process; it can be in another."""


class Bounded:
    """A file for a pickle that is given up when it becomes long."""

    def __init__(self, most):
        self.pieces, self.room, self.has_buffers = [], most, False

    def write(self, piece):
        self.room -= len(piece)
        if self.room < 0:
            raise TooLong
        self.pieces.append(bytes(piece))

    def callback(self, buffer):
        self.has_buffers = True
        self.room -= buffer.raw().nbytes
        if self.room < 0:
            raise TooLong


class Mapped:
    """A value that was handed over, before it is asked for."""

    def __init__(self, heap, descriptor):
        self.heap, self.descriptor = heap, descriptor

    def value(self):
        if self.heap is None:
            raise OSError(errno.ENOSYS, "a value cannot be mapped: this interpreter is not the one that made it")  # noqa: F821
        return self.heap.read(self.descriptor)

    def __del__(self):
        os.close(self.descriptor)  # noqa: F821 - of lines.py


class Habit:
    """Whether a function's calls make small objects in their segment, or large ones. Pages take longer to be had there,
    which pays for what is handed over; for what ends with its call memory that has been used before is better."""

    def __init__(self, pieces, kept_share):
        self.pieces, self.kept_share = pieces, kept_share
        # For how many calls more it is not tried, and for how many it was not the last time.
        self.left, self.paused = 0, 0
        # Bytes that calls have made there, and handed over: of each earlier one half of what counts of the next.
        self.bytes = 0, 0
        # Whether it is tried for it was missed, and whether that was in vain before this pause.
        self.is_missed = self.was_in_vain = False

    def taken(self):
        """What a call that begins takes."""
        self.left -= self.left > 0
        return 0 if self.left else self.pieces

    def learn(self, taken, kept, copied):
        """What a call has made there, in bytes, how much of it was handed over, and how much of that was made elsewhere."""
        if self.left:
            # What is handed over has become more than what was made in vain. Where it is made elsewhere all the same, as what is
            # kept from call to call, that was found out the last time.
            if not self.was_in_vain and copied >= max(self.bytes[0] * self.kept_share, WASTE_MIN):
                self.left, self.is_missed = 0, True
            return
        if taken < WASTE_MIN:
            return
        taken, kept = self.bytes = taken + self.bytes[0] // 2, kept + self.bytes[1] // 2
        is_wasted = kept < taken * self.kept_share
        self.paused = min(max(PAUSE, self.paused * 2), PAUSE_MAX) if is_wasted else 0
        self.left, self.is_missed, self.was_in_vain = self.paused, False, self.is_missed and is_wasted


class Heap:
    """The memory in which a process makes what it hands over, and maps what it is handed."""

    def __init__(self, core):
        self.core = core
        self.is_open, self.mapped, self.has_adopted = False, 0, False
        # Whether the call was given values, or one before it that are still to be looked at.
        self.was_given = False
        # A pickle that is shorter is sent. Whether what is sent is for a step here as well, and its copy for that.
        self.sent_max, self.is_followed, self.copied = MAPPED_BYTES_MIN, False, None
        # Whether the call has a result, so that it tells what calls hand over; and whether it goes on with what another one has given away.
        self.has_result = self.has_given = False
        # Whether the result was written and is still to be closed, and whether the collector is to go on then.
        self.is_held = self.was_collecting = False
        # Small results, since the last one that was none; and whether the call would have memory for a long one but for that.
        self.small_results, self.is_passed_over = 0, False
        # The NumPy that was looked at, and what is told of its arrays.
        self.numpy = self.arrays = None
        # By kind of value: for how many more of them nothing is tried, or LARGE.
        self.kinds = {}
        self.habits = Habit(TAKES_SMALL, KEPT_SMALL), Habit(TAKES_LARGE, KEPT_LARGE)
        # Types of objects of the call's result that could not be copied, and how many of each.
        self.pickled = {}
        # Of these, objects of libraries that are where they were made.
        self.reached = collections.Counter()  # noqa: F821
        # What the function may have of memory, if that is known, and what it had after its first call.
        self.limit, self.first = 0, None
        # What it had for itself when that began.
        self.begun_bytes = 0
        # Of the values that were mapped: all but the last one, which others of its run may need, and that one.
        self.before_bytes, self.last_bytes = 0, 0
        # Of those that it made: they are charged to it for as long as anybody has them mapped, and it lives.
        self.handed_bytes = 0
        core.segment_open.argtypes = [ctypes.c_int, ctypes.c_size_t, ctypes.c_size_t, ctypes.c_int]  # noqa: F821
        core.segment_use.argtypes, self.use = [ctypes.c_void_p], (ctypes.c_uint64 * 4)()  # noqa: F821
        core.heap_elsewhere.argtypes, self.elsewhere = [ctypes.c_void_p], (ctypes.c_uint64 * 2)()  # noqa: F821
        core.heap_elsewhere.restype = None
        core.segment_sweep.restype = core.heap_bytes.restype = core.arenas_kept.restype = core.blocks_free.restype = ctypes.c_size_t  # noqa: F821
        core.prefetch_allow.argtypes = [ctypes.c_size_t]  # noqa: F821
        core.heap_is_plain.argtypes = [ctypes.py_object, ctypes.c_size_t]  # noqa: F821
        core.heap_owned.argtypes, core.heap_owned.restype = [ctypes.py_object], ctypes.py_object  # noqa: F821
        core.heap_know.argtypes = [ctypes.py_object, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.py_object]  # noqa: F821
        core.heap_references_met.restype = ctypes.c_size_t  # noqa: F821
        core.heap_ends_alike.argtypes = [ctypes.py_object, ctypes.py_object]  # noqa: F821
        core.heap_plain_copy.argtypes, core.heap_plain_copy.restype = [ctypes.py_object], ctypes.py_object  # noqa: F821
        core.heap_begin.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_char_p]  # noqa: F821
        core.heap_functions.restype = core.heap_foreign.restype = core.heap_types.restype = ctypes.py_object  # noqa: F821
        core.heap_buffers.restype = core.heap_value.restype = ctypes.py_object  # noqa: F821
        core.heap_adopt_arrays.argtypes = [ctypes.py_object, ctypes.py_object, ctypes.c_size_t]  # noqa: F821
        core.heap_written.argtypes = [ctypes.c_char_p, ctypes.c_size_t] * 2 + [ctypes.c_size_t]  # noqa: F821
        core.heap_written.restype = ctypes.c_int64  # noqa: F821
        core.heap_map.argtypes = [ctypes.c_int, ctypes.c_char_p]  # noqa: F821
        core.heap_settle.argtypes = [ctypes.c_char_p, ctypes.py_object]  # noqa: F821
        core.heap_buffers.argtypes = [ctypes.c_char_p]  # noqa: F821
        core.heap_value.argtypes = [ctypes.c_char_p, ctypes.py_object]  # noqa: F821
        core.heap_registered.argtypes, core.heap_registered.restype = [ctypes.py_object], None  # noqa: F821
        core.heap_registered(copyreg.dispatch_table)
        self.copy, persist, self.buffer, load, self.told_brief, self.peak = core.heap_functions()
        self.pickler = type("HeapPickler", (pickle.Pickler,), {"persistent_id": persist})
        self.unpickler = type("HeapUnpickler", (pickle.Unpickler,), {"persistent_load": load})

    # ------------------------------------------------------------- filling

    def begin(self, outbox, base):
        """A call begins. Its outbox is as long as the memory that the function may have, and twice that where it has an address."""
        if not self.limit:
            self.may_have(os.fstat(outbox).st_size // (2 if base else 1))  # noqa: F821
        if not self.passes_over(base):
            self.open(outbox, base)

    def begin_again(self, base):
        """The same with what the call before has left as it was; whether that is there."""
        return self.passes_over(base) or self.open_again()

    def passes_over(self, base):
        """Whether nothing is made where it can be handed over: there are no addresses, or it would not be."""
        self.is_passed_over = base != 0 and self.small_results >= SMALL_IN_A_ROW
        return base == 0 or self.is_passed_over

    def open(self, descriptor, base):
        """From now on large arrays and strings are made where they can be handed over."""
        size = os.fstat(descriptor).st_size & ~4095  # noqa: F821
        return self.opened(self.core.segment_open(descriptor, base, size, self.taken()))

    def open_again(self):
        """The same with what the call before has left as it was."""
        return self.opened(self.core.segment_again(self.taken()))

    def taken(self):
        return self.habits[0].taken() + self.habits[1].taken() + (TAKES_LIBRARY if libraries else 0)  # noqa: F821 - of models.py

    def opened(self, done):
        self.is_open = done == 0
        if self.is_open:
            self.adopt()
            self.adopt_arrays()
            adopt_pixels()  # noqa: F821 - of images.py
        return self.is_open

    def adopt(self):
        if not self.has_adopted:
            self.core.heap_adopt()
            self.has_adopted = True

    def is_untouched(self):
        """Whether the call has made nothing there; then nothing more is, and it is the next call's. It can be asked once."""
        if self.is_open and not self.core.segment_withdraw():
            return False
        self.is_open = self.has_result = False
        return True

    def go_on(self):
        """A call begins that goes on with what the one before has made there."""
        self.has_given = True
        self.adopt_arrays()
        adopt_pixels()  # noqa: F821 - of images.py

    def bytes_left(self):
        """What was made there by the call that runs, and has not ended."""
        self.core.segment_use(self.use)
        return self.use[1] + self.use[3]

    def own_bytes(self):
        """What calls have taken for themselves: what a process was forked with is its template's."""
        return max(own_memory_bytes() - self.begun_bytes, 0)

    def adopt_arrays(self):
        """NumPy knows where its memory is to come from by context, so that each call says it."""
        numpy = sys.modules.get("numpy")  # noqa: F821
        if numpy is None:
            return
        if numpy is not self.numpy:
            self.numpy, self.arrays = numpy, arrays_of(numpy)
        if self.arrays:
            self.core.heap_adopt_arrays(*self.arrays)

    def brief(self, value):
        """The pickle of what is plain and short, which takes less time than to think of anything else; None for what is not."""
        if (told := self.told_brief(value)) is None:
            return None
        self.has_result = self.has_result or self.is_open
        copy, pickled = told
        # What has many lists that others have as well is not copied.
        is_copied = copy is not None or pickled is not None
        # As in `write`.
        self.copied = (copy,) if self.is_followed and is_copied else None
        return self.sent(pickle.dumps(copy if is_copied else value, 5) if pickled is None else pickled)

    def write(self, box):
        """How many bytes of the segment are the only item of the box; None if it is not to be mapped, or its pickle if
        that is short. It can be tried once."""
        if self.is_open:
            # What is made from now on is not what is handed over.
            self.core.segment_stop()
            self.has_result = True
        # The step that follows has a copy of what is plain, and the node is told the same, whoever changes it meanwhile.
        self.copied = self.core.heap_plain_copy(box[0]) if self.is_followed else None
        value = self.copied[0] if self.copied else box[0]
        # Most of what is small is known to be.
        if self.core.heap_is_plain(value, self.sent_max):
            return self.sent(pickle.dumps(value, 5))
        if not self.is_open and not self.is_passed_over:
            return None
        kind = kind_of(box[0])
        if self.is_sent(kind):
            self.pickled = {type(box[0]): 1}
            return None
        if (small := self.small(value, kind)) is not LARGE:
            return self.sent(small)
        # The box alone has it from here on.
        self.small_results, self.copied, value = 0, None, None
        if not self.is_open:
            return None
        was_enabled = gc.isenabled()  # noqa: F821
        gc.disable()  # noqa: F821
        try:
            for attempt in (self.write_copies, self.write_pickles):
                if self.core.heap_write() < 0:
                    return None
                try:
                    length = self.written(*attempt(box))
                except Exception:
                    # Whoever sends it says why it cannot be.
                    continue
                if length > 0:
                    if self.core.heap_bytes() < MAPPED_BYTES_MIN:
                        self.kinds.pop(kind, None)
                    return length
            # All that was tried was for nothing.
            self.pickled = self.pickled or {type(box[0]): 1}
            self.learn(kind, TRIED_AGAIN)
            return None
        finally:
            if was_enabled:
                gc.enable()  # noqa: F821

    def sent(self, small):
        """A small result has been pickled, if it could be."""
        self.small_results += 1
        return small

    def is_sent(self, kind):
        """Whether values of this kind could not be written the last time."""
        left = self.kinds.get(kind, 0)
        if left > 0:
            self.kinds[kind] = left - 1
        return left > 0

    def small(self, value, kind):
        """As `small_pickle`, which is not asked again for kinds of values that took it long: a model may take as long to be
        pickled as to be trained."""
        if self.kinds.get(kind) == LARGE:
            return LARGE
        begun = time.monotonic_ns()  # noqa: F821
        small = small_pickle(value, self.sent_max)
        if small is LARGE and time.monotonic_ns() - begun > TRIAL_NS_MAX:  # noqa: F821
            self.learn(kind, LARGE)
        return small

    def learn(self, kind, what):
        if len(self.kinds) >= KINDS_MAX:
            self.kinds.clear()
        self.kinds[kind] = what

    def write_copies(self, box):
        self.reached = collections.Counter()  # noqa: F821
        try:
            self.copy(box)
            return self.pickles_of(self.core.heap_foreign())
        finally:
            # Also of what is given up because of them, as far as that came.
            self.pickled = collections.Counter(map(type, self.core.heap_foreign()))  # noqa: F821
            self.pickled -= self.reached

    def write_pickles(self, box):
        foreign = self.core.heap_foreign()
        foreign += box
        return self.pickles_of(foreign)

    def written(self, pickles, count):
        types = pickled(self.core.heap_types())
        return self.core.heap_written(types, len(types), pickles, len(pickles), count)

    def pickles_of(self, foreign):
        """What cannot be copied, with references to what can."""
        if not foreign:
            return b"", 0
        target, self.reached = io.BytesIO(), collections.Counter()  # noqa: F821
        pickler = self.pickler(target, 5, buffer_callback=self.buffer)
        reducing(pickler, ways_to_map(self.reached))  # noqa: F821 - of images.py and models.py
        count = 0
        while count < len(foreign):
            pickler.dump(foreign[count])
            count += 1
        return target.getvalue(), count

    def hold(self):
        """Whether what was written can wait to be closed until the call has been answered: nothing else runs here until then. What is
        long takes a while to be made this process's own."""
        self.is_held = self.core.segment_hold() != 0
        if self.is_held:
            self.was_collecting = gc.isenabled()  # noqa: F821
            gc.disable()  # noqa: F821
        return self.is_held

    def close(self, keep):
        """Ends the filling; with `keep`, what was written is from now on as it is."""
        self.is_open = False
        self.core.segment_use(self.use)
        done = self.core.segment_close(keep)
        if self.is_held:
            self.is_held = False
            if self.was_collecting:
                gc.enable()  # noqa: F821
        self.core.heap_elsewhere(self.elsewhere)
        is_kept = keep and done == 0
        # What was given away was not made in vain, though nobody maps it.
        self.has_result = self.has_result and (is_kept or not self.has_given)
        for habit, taken, left, copied in zip(self.habits, self.use[::2], self.use[1::2], self.elsewhere) if self.has_result else ():
            habit.learn(taken, left if is_kept else 0, copied if is_kept else 0)
        self.has_result = self.has_given = False
        self.core.heap_leave(is_kept)
        # What it refers to had to live until now.
        self.core.heap_end()
        return done

    def end(self):
        """A call is over, however it was. Whether the process has to end: what it has mapped, it cannot give back."""
        if self.is_open:
            self.close(False)
        self.core.heap_release()
        if self.was_given:
            self.was_given = self.core.heap_map_end() > 0
        if self.mapped >= MAPPED_MAX or not self.limit:
            return self.mapped >= MAPPED_MAX
        # What is left of calls, as in caches, may keep all the memory of theirs.
        has_grown = self.has_grown()
        if has_grown:
            gc.collect()  # noqa: F821
            has_grown = self.has_grown()
        is_charged_much = self.handed_bytes > self.limit // HANDED_SHARE
        return is_charged_much or self.before_bytes > self.limit // 2 or has_grown

    def has_grown(self):
        """Whether half of the memory that was free after the first call is taken: by segments that it filled, or by what
        is written to those and to mapped values, which stays for as long as they do."""
        filled = self.core.segment_sweep()
        if self.first and not self.mapped and filled <= self.first[0]:
            # None of it is this one's, and to ask the kernel takes as long as a small value does from step to step.
            return False
        # What is free is the kernel's whenever it needs it.
        now = filled, own_memory_bytes() - self.core.arenas_kept() - self.core.blocks_free()
        self.first = self.first or now
        room = max(self.limit - sum(self.first), self.limit // 4)
        is_ours = self.mapped or filled > self.first[0]
        return bool(is_ours) and sum(now) - sum(self.first) > room // 2

    def may_have(self, limit):
        """Says what the function may have of memory."""
        if not self.limit:
            self.limit, self.begun_bytes = limit, own_memory_bytes()
            self.core.prefetch_allow(limit // PREFETCH_SHARE)

    # ------------------------------------------------------------- mapping

    def read(self, descriptor, adopt=True):
        """The value that is handed over; what is written to it is this process's own."""
        head = ctypes.create_string_buffer(HEAD_BYTES)  # noqa: F821
        self.was_given = adopt
        done = self.core.heap_map(descriptor, head)
        if done < 0:
            # It is another one's turn, and this one is of no more use.
            self.mapped = MAPPED_MAX
            kind = Unmappable if done in (-errno.EEXIST, -errno.ENOSPC) else OSError  # noqa: F821
            raise kind(-done, f"a value cannot be mapped: {os.strerror(-done)}")  # noqa: F821
        # What the template hands itself is none of a call's.
        if done == 0 and adopt:
            self.mapped += 1
            self.before_bytes, self.last_bytes = self.before_bytes + self.last_bytes, os.fstat(descriptor).st_blocks * 512  # noqa: F821
        if adopt:
            self.adopt()
        types_at, types_length, types, at, length, count = PICKLES.unpack_from(head, PICKLES_AT)
        types = all_of(pickle.Unpickler(bytes_at(types_at, types_length)), types)
        self.core.heap_settle(head, types)
        unpickler = self.unpickler(bytes_at(at, length), buffers=self.core.heap_buffers(head))
        foreign = all_of(unpickler, count)
        return self.core.heap_value(head, foreign)


class HandsOver:
    """An instance's part in this."""

    # Where a long result of the call may be put, and whether something was; what an earlier call has left as it was; and
    # which file it is.
    outbox, is_filled, kept, lent = None, False, None, None

    def lend(self, outbox, base):
        """The call that begins is lent memory: that which was kept, if the node has sent none."""
        is_kept, self.is_filled = outbox is None, False
        if not is_kept:
            self.let_go()
            self.lent = file_of(outbox)
        self.outbox, self.kept = self.kept if is_kept else outbox, None
        # What was kept is looked at where it is used, and only here if it is to be used anew.
        if self.heap and not (is_kept and self.heap.begin_again(base)):
            if not is_kept or file_of(self.outbox) == self.lent:
                self.heap.begin(self.outbox, base)

    def let_go(self):
        """Of what the last call was lent, or has kept. A function that closes all that a process has gives its number to others."""
        for descriptor in (self.outbox, self.kept):
            if descriptor is not None and file_of(descriptor) == self.lent:
                os.close(descriptor)  # noqa: F821
        self.outbox = self.kept = None

    def has_forked(self):
        """What is forked while a call runs may have what that was lent, and go on after it."""
        self.is_filled = True

    def keep(self):
        """The call has its result. What it was lent is the next one's if it is as it was, or if that goes on with what is there, and
        the node is told so with the next frame."""
        if self.outbox is None or self.is_filled:
            return
        self.goes_on = self.given is not None and self.heap.is_open
        if not self.goes_on:
            if self.heap and not self.heap.is_untouched():
                return
            self.kept, self.outbox = self.outbox, None
        self.channel.hold(KEEPS, self.turn)  # noqa: F821

    def offer(self, module):
        """What the steps of workflows use of it (`workflow.py`)."""
        module.reducing, module.image_at, module.image_has = reducing, image_at, image_has  # noqa: F821 - of images.py
        module.opened_at, module.opened_has = opened_at, opened_has  # noqa: F821
        module.booster_at, module.booster_has, module.tree_at = booster_at, booster_has, tree_at  # noqa: F821 - of models.py
        module.share, module.hand_over, module.tell_phases = self.share, self.hand_over, self.tell_phases

    def tell_phases(self, marks):
        """How long a step took its arguments, ran, and gave its result, as far as it came, and what of that was pickled. It
        goes with the next frame, at the latest with the answer."""
        pickled = b""
        if self.heap and self.heap.pickled:
            pickled, self.heap.pickled = told_types(self.heap.pickled), {}
        begun, ready, ran, told = (marks + marks[-1:] * 2)[:4]
        payload = PHASES_TIMES.pack((ready - begun) // 1000, (ran - ready) // 1000, (told - ran) // 1000) + pickled
        self.channel.hold(PHASES, self.turn, payload)  # noqa: F821

    def share(self, parts):
        """A result that is not sent; None if there is no place for it: where memory is made to be mapped, there is none."""
        is_free = self.outbox is not None and not (self.heap and self.heap.is_open)
        if not is_free or file_of(self.outbox) != self.lent:
            return None
        self.is_filled = True
        return put(self.outbox, parts)  # noqa: F821 - of shared.py

    def hand_over(self, box, arguments=None):
        """A result, the only item of the box, that others map. What is better sent is None, or pickled already; what is given
        to the step that follows is `GIVEN`. The arguments are those of the call: positional and named ones, and what they have of other
        steps."""
        heap = self.heap
        if heap and self.is_told_at_once() and (told := heap.brief(box[0])) is not None:
            self.heir = None
            return told
        if self.give(box, arguments):
            return GIVEN
        length = heap.write(box) if heap else None
        # It has been closed before if the function, or what pickles its objects, has forked.
        if not isinstance(length, int):
            return length
        self.is_filled = True
        # Streams of the function's own are flushed before the answer, and whoever traces it is told of all that runs.
        if (not self.has_own_streams() or is_traced() or not self.heap.hold()) and not self.make_final():
            return None
        return Handed(length, box)

    def leave_as_it_is(self):
        """The call has been answered: what it has handed over does not change any more."""
        if self.heap and self.heap.is_held and not self.make_final():
            # Others have it, and it would change with what this process does.
            self.leave()

    def make_final(self):
        """Has what the call hands over be as it is from now on; whether that could be done."""
        is_done = self.heap.close(True) == 0
        if is_done and file_of(self.outbox) == self.lent:
            self.heap.handed_bytes += os.fstat(self.outbox).st_blocks * 512  # noqa: F821
        return is_done


def is_traced():
    """Whether code of others runs wherever any does."""
    monitoring = getattr(sys, "monitoring", None)  # noqa: F821
    return sys.gettrace() or sys.getprofile() or (monitoring and any(map(monitoring.get_tool, range(6))))  # noqa: F821


def file_of(descriptor):
    """Which file it is, whatever its number; None if there is none."""
    try:
        found = os.fstat(descriptor)  # noqa: F821
    except OSError:
        return None
    return found.st_dev, found.st_ino


# Of a step: how long its parts took, in µs; how many objects of a type were pickled, and the length of its name.
PHASES_TIMES, PHASES_TYPE = struct.Struct("<3Q"), struct.Struct("<IB")  # noqa: F821
# Types that have names, and bytes of one.
PICKLED_TYPES_MAX, PICKLED_NAME_MAX = 16, 128
# Of `struct head` in heap.h: where the pickles are told.
PICKLES, PICKLES_AT = struct.Struct("<6Q"), 8 + 24 + 32 + 8 + 6 * 16  # noqa: F821


def told_types(counts):
    """The most frequent types by their names, and all others as one."""
    ranked = sorted(counts.items(), key=lambda one: -one[1])
    told = [(name_of(kind), count) for kind, count in ranked[:PICKLED_TYPES_MAX]]
    if rest := sum(count for _, count in ranked[PICKLED_TYPES_MAX:]):
        told.append((b"other", rest))
    return b"".join(PHASES_TYPE.pack(min(count, 0xFFFFFFFF), len(name)) + name for name, count in told)


def name_of(kind):
    try:
        return kind_name(kind).encode("utf-8", "replace")[:PICKLED_NAME_MAX]  # noqa: F821 - of failures.py
    except Exception:
        # What a class says of itself may be anything.
        return b"other"


def own_memory_bytes():
    """What a process has for itself."""
    told = os.open("/proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)  # noqa: F821
    try:
        _, resident, shared, *_ = map(int, os.read(told, 256).split())  # noqa: F821
    finally:
        os.close(told)  # noqa: F821
    return (resident - shared) * 4096


def arrays_of(numpy):
    """Its table of functions, the type of its arrays, and where `elsize` is in PyArray_Descr; None of one that is too old."""
    for name, element_size_at in (("numpy._core.multiarray", 40), ("numpy.core.multiarray", 32)):
        functions = getattr(sys.modules.get(name), "_ARRAY_API", None)  # noqa: F821
        if functions is not None:
            version = tuple(map(int, numpy.__version__.split(".")[:2]))
            return (functions, numpy.ndarray, element_size_at) if version >= (1, 22) else None
    return None


def kind_of(value):
    """What values have in common that are handed over in the same way: their type, and that of the first thing in them."""
    kind = type(value)
    if kind in (list, tuple, dict, set, frozenset) and value:
        return kind, type(next(iter(value.values() if kind is dict else value)))
    return kind


def bytes_at(address, length):
    return io.BytesIO(ctypes.string_at(address, length))  # noqa: F821


def pickled(objects):
    target = io.BytesIO()  # noqa: F821
    for one in objects:
        pickle.Pickler(target, 5).dump(one)
    return target.getvalue()


def all_of(unpickler, count):
    return [unpickler.load() for _ in range(count)]


def small_pickle(value, most):
    """LARGE for what is better mapped; else its pickle, or None if that is still to be made."""
    kind = type(value)
    if kind in (str, bytes, bytearray) and len(value) >= most:
        return LARGE
    if kind in (list, tuple, dict, set, frozenset) and len(value) >= most // BYTES_OF_AN_ITEM:
        return LARGE
    target = Bounded(most)
    try:
        pickler = pickle.Pickler(target, 5, buffer_callback=target.callback)
        reducing(pickler, ways_to_tell_long(most)).dump(value)  # noqa: F821 - of images.py and models.py
    except TooLong:
        return LARGE
    except Exception:
        # Whoever sends it says why it cannot be.
        return None
    return None if target.has_buffers else b"".join(target.pieces)


def heap_of(core):
    """The heap of this process, if its interpreter is one that is known in every part that matters."""
    version = sys.version_info  # noqa: F821
    if sys.implementation.name != "cpython" or hasattr(sys, "gettotalrefcount") or "t" in sys.abiflags:  # noqa: F821
        return None
    try:
        if core.heap_begin(version[0], version[1], program_identity()) < 0 or not has_known_sizes(version):
            return None
        heap = Heap(core)
        if not is_right(heap):
            return None
        use_pixels_of(core)  # noqa: F821 - of images.py
        return heap
    except (AttributeError, OSError):
        return None


def program_identity():
    """Tells programs apart in which the same address may be something else."""
    facts = [sys.version, hash("sinew"), hash(b"sinew"), *map(id, (None, True, (), "", 0, 256, int, str, dict, KeyError))]  # noqa: F821
    return hashlib.blake2b(repr(facts).encode(), digest_size=32).digest()  # noqa: F821


def has_known_sizes(version):
    ascii_head, text_head = (48, 72) if version[:2] == (3, 11) else (40, 56)
    known = {"": ascii_head + 1, "\xe9 "[::-1]: text_head + 3, "\u0100 "[::-1]: text_head + 6, b"": 33, 0.5: 24, 0j: 32, 1 << 30: 32}
    tuple_head, bytearray_head = 32 if version >= (3, 14) else 24, 64 if version >= (3, 15) else 56
    return all(one.__sizeof__() == size for one, size in known.items()) and [
        [].__sizeof__(), ().__sizeof__(), set().__sizeof__(), bytearray().__sizeof__(), dict.__basicsize__
    ] == [40, tuple_head, 200, bytearray_head, 48]  # fmt: skip


class Probe:
    """Instances of it are what `is_right` hands over to itself."""


def is_right(heap):
    """Hands itself a value with one of each kind, and looks whether it is the same."""
    probe = Probe()
    probe.some, probe.more = [1, probe], {"a": 1 << 70}
    kinds = ["a" * 70, "\xe9" * 9, "\u0100b", "\U0001f600", b"bytes" * 20, bytearray(b"some"), 0, -1, 1 << 62, -(1 << 90), 0.25, 1j, None,
             True, (), ("a", 1.5), {}, {"a": 1, "b": [2]}, {1: 2, (3, "x"): None}, {1, 2, 300}, frozenset("abcdefghijk")]  # fmt: skip
    descriptor = os.memfd_create("probe", os.MFD_CLOEXEC)  # noqa: F821
    try:
        os.ftruncate(descriptor, PROBE_BYTES)  # noqa: F821
        if heap.core.segment_open(descriptor, PROBE_BASE, PROBE_BYTES, TAKES_SMALL | TAKES_LARGE) < 0:
            return False
        if heap.core.heap_write() < 0:
            # Something else is there.
            heap.close(False)
            return False
        pickles, count = heap.write_copies([(kinds, probe)])
        length = heap.written(pickles, count)
        heap.close(True)
        if length < 0:
            return False
        # Nothing is made larger: the allocators are still what they were.
        others, other = heap.read(descriptor, adopt=False)
        is_same = others == kinds and [type(one) for one in others] == [type(one) for one in kinds]
        other.some[0], other.more["a"] = 2, 3
        return is_same and other.some[1] is other and other.some[0] == 2 and other.more == {"a": 3}
    except (ValueError, Unmappable):
        return False
    finally:
        os.close(descriptor)  # noqa: F821
