# SPDX-License-Identifier: Apache-2.0
# Requests that an instance serves at the same time (`requests-per-instance`). It is run before `template.py`, in the
# same module: names that are not defined here are that one's.
#
# Only the main thread reads the channel. Where the handler is a coroutine or an ASGI application, it is the thread of
# the event loop too, on which all calls run. Otherwise each call has a thread, and the main one only reads.

import contextvars
import os
import struct
import sys
import threading
import traceback


# An instance has 64 threads, of which its calls have up to 32.
OVERDUE_THREADS_MAX = 16


class RunningCall:
    """A call that runs beside others, and what comes and goes of it in pieces. Who has it need not run for it: an
    application may have one task send what others answer."""

    def __init__(self, calls, turn, log_left):
        self.calls, self.turn, self.is_over = calls, turn, False
        # Of what it prints: bytes that may still be told, and those that are not told yet.
        self.log_left, self.held, self.is_in_line = log_left, nothing_held(), False  # noqa: F821
        # Bytes of the result that may be sent, and whether nobody wants them any more.
        self.room, self.has_left, self.on_left = STREAM_WINDOW, False, []
        # What has come of its body, if that comes while it runs.
        self.body, self.body_end = [], None
        # What came of calls of other functions, by their numbers; None until something did.
        self.answers = {}
        # Of coroutines that wait until something has come.
        self.wakes = []
        # What runs it: a task, or else the thread of that number.
        self.task, self.thread = None, None

    def stream(self, piece):
        """Sends the next bytes of the result; false if there is no room for them now."""
        if threading.get_ident() == self.calls.main:
            # An application that makes much at once lets nobody else read.
            try:
                self.calls.read_what_is_there()
            except BaseException:
                # What is received already makes the descriptor readable no more.
                self.calls.loop.call_soon(self.calls.read_when_there)
                raise
        with self.calls.changed:
            if self.is_over or self.has_left:
                raise ConnectionResetError("nobody waits for the answer any more")
            if self.room < len(piece):
                return False
            self.room -= len(piece)
            # Nothing of it may be sent once it is answered for.
            self.calls.channel.send(PIECE, self.turn, piece)
        return True

    def has_room(self, size):
        return self.is_over or self.has_left or self.room >= size

    def wait_for_room(self, size):
        self.calls.wait(lambda: self.has_room(size))

    async def room_comes(self, size):
        await self.calls.comes(self, lambda: self.has_room(size))

    def take_body(self):
        """The next bytes of the request's body; none after the last of them, and None if there are none now."""
        with self.calls.changed:
            if not self.body:
                if self.is_over:
                    raise RuntimeError("a request's body is read while it is handled")
                if self.body_end == BODY_LOST:
                    raise ConnectionResetError("the client left before the end of the body")
                return b"" if self.body_end == BODY else None
            piece, self.body = b"".join(self.body), []
            if self.body_end is None and not self.is_over:
                self.calls.channel.send(WANTS, self.turn, struct.pack("<I", len(piece)))
        return piece

    def has_body(self):
        return self.body or self.body_end or self.is_over

    def wait_for_body(self):
        self.calls.wait(self.has_body)

    async def body_comes(self):
        await self.calls.comes(self, self.has_body)

    def when_left(self, then):
        """Has something done when nobody waits for the answer any more."""
        if self.is_over or self.has_left:
            return then()
        self.on_left.append(then)


class CallsAtOnce:
    """What calls have to do with the node while they run, as `Callees`, where several do so at once."""

    def __init__(self, instance, most):
        self.instance, self.channel, self.most = instance, instance.channel, most
        self.running = {}
        self.whose = contextvars.ContextVar("sinew_call", default=None)
        # What is collected, or a signal's handler, may print while it is held.
        self.changed, self.main = threading.Condition(threading.RLock()), threading.get_ident()
        # The head of a frame of which the rest is still to be received.
        self.head = None
        # Of calls of other functions: the number of the last one, how many there are, and bytes of their bodies.
        self.last, self.under_way, self.bytes = 0, 0, 0
        self.begin, self.loop, self.kept_max = None, None, 0
        # Calls that have used up their time and go on; those that stood in line for a thread, too.
        self.overdue, self.overdue_max = set(), most

    # -------------------------------------------------------------- serving

    def serve(self):
        """Never returns."""
        apply = self.instance.apply
        if hasattr(apply, "awaited"):
            return self.serve_on_loop(apply.event_loop())
        from concurrent.futures import ThreadPoolExecutor

        self.overdue_max = min(self.most, OVERDUE_THREADS_MAX)
        threads = ThreadPoolExecutor(self.most + self.overdue_max, "call")
        self.begin = lambda call, arguments: threads.submit(contextvars.copy_context().run, self.run, call, arguments)
        while True:
            self.unless_raised(self.read)

    def serve_on_loop(self, loop):
        self.loop, tasks = loop, set()

        def begin(call, arguments):
            call.task = task = loop.create_task(self.run_awaited(call, arguments))
            # The loop itself forgets tasks that nobody holds.
            tasks.add(task)
            task.add_done_callback(tasks.discard)

        self.begin = begin
        loop.add_reader(self.channel.stream.fileno(), self.read_when_there)
        # Some of them may have come with the function.
        loop.call_soon(self.read_when_there)
        while not loop.is_closed():
            # A task of the function's that wants to end the process does not: it has others' requests.
            self.unless_raised(loop.run_forever)
        os._exit(1)

    def unless_raised(self, act):
        """Whether something was done, and nothing raised, as a signal's handler of the function's may. Ends with the channel."""
        try:
            act()
            return True
        except ConnectionError:
            os._exit(0)
        except BaseException as error:
            traceback.print_exception(error)
            return False

    def run(self, call, arguments):
        if call.is_over:
            return self.overdue.discard(call)
        call.thread = threading.get_ident()
        self.whose.set(call)
        try:
            answer, told = self.instance.answer, self.instance.apply(*arguments)
        except BaseException as error:
            answer, told = self.instance.raised, error
        self.end(call, answer, told)

    async def run_awaited(self, call, arguments):
        self.whose.set(call)
        try:
            answer, told = self.instance.answer, await self.instance.apply.awaited(*arguments)
        except BaseException as error:
            answer, told = self.instance.raised, error
        self.end(call, answer, told)

    def end(self, call, answer, told):
        """It is over, unless it was before, and what it asked of others is of no use any more."""
        self.instance.flush()
        with self.changed:
            if call.is_over:
                return self.overdue.discard(call)
            call.is_over = True
            self.running.pop(call.turn, None)
            self.has_changed(call)
        # What is printed from now on between calls has its bound anew.
        self.instance.log_left = BETWEEN_CALLS_BYTES
        try:
            answer(call.turn, told)
        except BaseException as error:
            self.instance.raised(call.turn, error)

    def current(self):
        """The call that this is done for; None if it is over, or none can be told."""
        call = self.whose.get()
        if call is None:
            # What libraries begin in threads of their own knows of no call; often there is only one.
            with self.changed:
                call = next(iter(self.running.values())) if len(self.running) == 1 else None
        return call if call and not call.is_over else None

    def needed(self, what):
        call = self.current()
        if call is None:
            raise RuntimeError(f"{what} while a request is handled, not before or after it")
        return call

    def exchange(self):
        """The request that is handled, and its answer."""
        return self.needed("a request is answered")

    def left_behind(self):
        """What a process has that the function has forked: it serves nobody."""
        return CallsAtOnce(self.instance, self.most)

    # -------------------------------------------------------------- reading

    def read_when_there(self):
        """Called by the event loop, which would go on whatever is raised here."""
        if not self.unless_raised(self.read_what_is_there):
            # Nothing is lost, and the rest is read.
            self.loop.call_soon(self.read_when_there)

    def read_what_is_there(self):
        """Acts on what was received at once, so that what calls wait for is not kept by what comes after it."""
        if self.channel.has_more():
            self.read()
            while self.channel.at < len(self.channel.data):
                self.read()

    def read(self):
        """Acts on the next frame, and waits for it. A signal's handler may raise meanwhile: nothing of it is lost then."""
        if self.head is None:
            self.head = self.channel.frame()[:3]
        length, kind, turn = self.head
        payload = self.channel.receive(length)
        self.head = None
        if kind == CALL:
            return self.begin_call(turn, payload)
        with self.changed:
            call = self.running.get(turn)
            # It may be of a call that has ended.
            if call and self.has_come(call, kind, payload):
                self.has_changed(call)
            elif kind not in (TOLD, ROOM, LEFT, BODY, BODY_LOST):
                os._exit(0)

    def begin_call(self, turn, payload):
        try:
            arguments, _, _ = self.instance.arguments(Received(payload))
            call = RunningCall(self, turn, self.instance.log_max)
            with self.changed:
                self.running[turn] = call
            self.begin(call, arguments)
        except BaseException as error:
            with self.changed:
                # It may stand in line for a thread all the same, where none could be started for it.
                if begun := self.running.pop(turn, None):
                    begun.is_over = True
            self.instance.raised(turn, error)

    def has_come(self, call, kind, payload):
        if kind == TOLD:
            number, status, size = struct.unpack_from("<IHH", payload)
            if call.answers.get(number, ENDED) is None:
                call.answers[number] = (status, payload[8 : 8 + size].decode(), payload[8 + size :])
        elif kind == ROOM:
            call.room += struct.unpack("<I", payload)[0]
        elif kind == LEFT:
            call.has_left = True
            for then in call.on_left:
                then()
            if payload:
                self.end_overdue(call)
        elif kind in (BODY, BODY_LOST):
            call.body += [payload] if payload else []
            call.body_end = None if payload else kind
        else:
            return False
        return True

    def end_overdue(self, call):
        """Its time is used up. A task is cancelled. A thread is not made to end, for it may have something in its hands
        that others share: what it does from now on is of no call. If too many do so, the instance has to end for it."""
        if len(self.overdue) >= self.overdue_max:
            return
        self.overdue.add(call)
        if call.task:
            call.task.add_done_callback(lambda _: self.overdue.discard(call))
        self.tell_place(call, "its time was used up here")
        call.is_over = True
        del self.running[call.turn]
        self.instance.raised(call.turn, TimeoutError("it has used up its time"))
        if call.task:
            call.task.cancel()

    def say_where(self, frame):
        """Before the process ends. The main thread, which this interrupts, may be running one of them."""
        for call in list(self.running.values())[:PLACES_TOLD]:  # noqa: F821
            self.tell_place(call, "its instance was ended while it was here", frame)

    def tell_place(self, call, what, frame=None):
        """Writes to a call's log where it is. What is awaited may be anything that the function has made."""
        try:
            if call.task is None:
                thread = sys._current_frames().get(call.thread)
                place = told_frames(frames_up_from(thread))  # noqa: F821
            elif frame is not None and self.whose.get() is call:
                place = told_frames(frames_up_from(frame))  # noqa: F821
            else:
                place = told_frames(frames_of_task(call.task))  # noqa: F821
        except BaseException as error:
            place = f"  it cannot be told: {type(error).__name__}\n"
        self.instance.tell_place(call, what, place)

    def has_changed(self, call):
        """Wakes all that wait for something to come to a call."""
        self.changed.notify_all()
        wakes, call.wakes = call.wakes, []
        for wake in wakes:
            if not wake.done():
                wake.set_result(None)

    def wait(self, is_there):
        """Waits until something has come, which only the main thread reads."""
        if threading.get_ident() == self.main:
            raise RuntimeError("nobody reads while the event loop waits")
        with self.changed:
            while not is_there():
                self.changed.wait()

    async def comes(self, call, is_there):
        """The same, while others go on."""
        import asyncio

        loop = asyncio.get_running_loop()
        if threading.get_ident() != self.main:
            return await loop.run_in_executor(None, self.wait, is_there)
        while not is_there():
            wake = loop.create_future()
            call.wakes.append(wake)
            try:
                await wake
            finally:
                if wake in call.wakes:
                    call.wakes.remove(wake)

    # ---------------------------------------------- calls of other functions

    def ask(self, target, kind, body):
        """Calls the function of a name: status, type and body of the answer."""
        if threading.get_ident() == self.main:
            raise RuntimeError("sinew.call would keep all requests of this event loop waiting: await sinew.call_async(…)")
        call, number = self.begin_to_ask(target, kind, body)
        try:
            self.wait(lambda: call.is_over or call.answers[number] is not None)
            return call.answers[number] or ENDED
        finally:
            self.end_asking(call, number, body)

    async def ask_async(self, target, kind, body):
        call, number = self.begin_to_ask(target, kind, body)
        try:
            await self.comes(call, lambda: call.is_over or call.answers[number] is not None)
            return call.answers[number] or ENDED
        finally:
            self.end_asking(call, number, body)

    def begin_to_ask(self, target, kind, body):
        name, kind = checked_question(target, kind, body)
        call = self.needed("functions are called")
        with self.changed:
            check_asked(self.under_way, self.bytes, body)
            self.under_way += 1
            self.bytes += len(body)
            number = self.last = (self.last + 1) & 0xFFFFFFFF
            call.answers[number] = None
            if not call.is_over:
                self.channel.send(ASK, call.turn, question_head(number, name, kind), kind, body)
        return call, number

    def end_asking(self, call, number, body):
        with self.changed:
            call.answers.pop(number, None)
            self.under_way -= 1
            self.bytes -= len(body)


class ServesSeveral:
    """An instance's part in this."""

    serves_several = False

    def serve_several(self, most):
        self.serves_several, self.callees = True, CallsAtOnce(self, most)
        self.print_to_the_node(by_several=True)

    def printing(self):
        """Who prints now: a call where several run, and otherwise, as beside all of them, the instance."""
        return (self.callees.current() or self) if self.serves_several else self
