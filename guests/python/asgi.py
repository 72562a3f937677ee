# SPDX-License-Identifier: Apache-2.0
# ASGI applications as handlers. It is run before `function.py`, in the same module:
# names that are not defined here are that one's, or the template's.
#
# A call lasts until the application returns: what it does after its answer (background
# tasks) belongs to the call, with its time and its log. The client gets the answer before.


class Lifespan:
    """The start of an ASGI application. One that knows no such thing raises, which is no error."""

    def __init__(self, app):
        import asyncio

        self.app, self.state, self.failed = app, {}, None
        self.done, self.asked = asyncio.Event(), False
        self.never = asyncio.Event()
        # Kept here, because the loop itself forgets tasks that nobody holds.
        # By its name it is known as no call's.
        self.task = event_loop().create_task(self.run(), name="sinew")
        event_loop().run_until_complete(asyncio.wait_for(self.done.wait(), timeout_ms / 1000))
        if self.failed is not None:
            raise RuntimeError(f"the application refused to start: {self.failed or 'it does not say why'}")

    async def run(self):
        scope = {"type": "lifespan", "asgi": {"version": "3.0", "spec_version": "2.0"}, "state": self.state}
        try:
            await self.app(scope, self.receive, self.send)
        except Exception:
            pass
        finally:
            self.done.set()

    async def receive(self):
        if self.asked:
            # Instances are ended without notice: there is no shutdown.
            await self.never.wait()
        self.asked = True
        return {"type": "lifespan.startup"}

    async def send(self, message):
        if message["type"] == "lifespan.startup.failed":
            self.failed = str(message.get("message", ""))
        self.done.set()


class Exchange:
    """One request to an ASGI application."""

    def __init__(self, app, scope, body, comes_later):
        import asyncio

        self.app, self.scope, self.body = app, scope, body
        # Whichever task sends its answer: it is this request's.
        self.request = exchange()  # noqa: F821 - the template's
        self.status, self.headers, self.pieces, self.size = None, [], [], 0
        # Bytes of the whole body, if the application tells.
        self.length = None
        self.finished = asyncio.Event()
        # Whether nothing more is to be answered, for whoever waits for that.
        self.gone, self.is_watched = asyncio.Event(), False
        self.received = False
        # Whether more of the request's body is still to come.
        self.comes_later = comes_later
        # Whether the response is sent in pieces; before that it is kept, for so many turns so far.
        self.streams, self.turns = False, None
        # What there was no room for, and whether the call is over, for whoever comes late.
        self.unsent, self.is_over = b"", False
        self.telling = None

    def let_go(self, turns):
        """Most applications end when they have answered: so many turns they are waited for."""
        if self.is_over:
            return
        if turns > 0:
            return event_loop().call_soon(self.let_go, turns - 1)
        self.telling = event_loop().create_task(self.tell_whole())

    async def tell_whole(self):
        """Sends what was kept, and that this is all of it: the client need not wait for the application's end."""
        data = b""
        if not self.streams:
            head = framed(self.status, self.headers)
            if len(head) > PIECE_BYTES_MAX:
                return
            self.streams, data = True, b"".join((head, *self.pieces))
        try:
            await self.stream(data)
            self.request.stream(b"")
        except ConnectionResetError:
            # It is all the same to what goes on.
            pass

    async def run(self):
        try:
            await self.app(self.scope, self.receive, self.send)
        except Exception as error:
            if not self.finished.is_set():
                raise
            # The application has answered for its error; servers only log it.
            print_error(error)
        finally:
            self.is_over = True
        if self.telling:
            await self.telling
        if not self.finished.is_set():
            raise RuntimeError("the application returned without sending a whole response")

    async def receive(self):
        if self.comes_later:
            return await self.receive_piece()
        if not self.received:
            self.received = True
            return {"type": "http.request", "body": self.body, "more_body": False}
        # Whoever hears of a disconnection stops streaming: not before the end, unless the client is known to have left.
        if not self.is_watched:
            self.is_watched = True
            self.request.when_left(self.gone.set)
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def receive_piece(self):
        """The next bytes of a body that comes while it is read."""
        self.received = True
        try:
            while (piece := self.request.take_body()) is None:
                await self.request.body_comes()
        except ConnectionResetError:
            self.comes_later = False
            return {"type": "http.disconnect"}
        self.comes_later = len(piece) > 0
        return {"type": "http.request", "body": piece, "more_body": self.comes_later}

    async def send(self, message):
        kind = message["type"]
        if self.is_over and not self.finished.is_set():
            # Another request may be answered by now.
            raise ConnectionResetError("nobody waits for the answer any more")
        if kind == "http.response.start":
            self.status = checked_status(message["status"])
            for name, value in message.get("headers", ()):
                if bytes(name).lower() == b"content-length" and bytes(value).isdigit():
                    self.length = int(value)
                add_header(self.headers, bytes(name).decode("latin-1"), bytes(value).decode("latin-1"))
        elif kind == "http.response.body":
            if self.status is None or self.finished.is_set():
                raise RuntimeError("a piece of the response's body came before its start, or after its end")
            piece = bytes(message.get("body", b""))
            self.size += len(piece)
            has_more = message.get("more_body", False)
            most = STREAM_BYTES_MAX if has_more or self.streams else RESULT_BYTES_MAX
            if self.size > most:
                raise ValueError(f"the response is longer than {most} bytes")
            if self.streams:
                await self.stream(piece)
            else:
                self.pieces.append(piece)
                if has_more:
                    await self.keep()
            if not has_more:
                self.finished.set()
                self.gone.set()
                self.let_go(TURNS_AT_ONCE)

    async def keep(self):
        """Keeps what has come of the response, in case that the rest is there at once, as middleware sends it."""
        import asyncio

        head = framed(self.status, self.headers)
        if len(head) > PIECE_BYTES_MAX:
            raise ValueError(f"the headers have {len(head)} bytes; a stream's have at most {PIECE_BYTES_MAX}")
        if self.size > KEPT_BYTES_MAX:
            self.streams = True
            await self.stream(b"".join((head, *self.pieces)))
        elif self.turns is None and (self.length is None or self.length > KEPT_BYTES_MAX):
            self.turns = 0
            asyncio.get_running_loop().call_soon(self.take_a_turn, asyncio.get_running_loop())

    def take_a_turn(self, loop):
        """Sends what was kept, if the rest has to be waited for."""
        if self.streams or self.is_over or self.finished.is_set():
            return
        self.turns += 1
        if self.turns < TURNS_AT_ONCE:
            return loop.call_soon(self.take_a_turn, loop)
        self.streams = True
        data = b"".join((framed(self.status, self.headers), *self.pieces))
        try:
            # There is room for what is sent first, as a rule.
            while data and self.request.stream(data[:PIECE_BYTES_MAX]):
                data = data[PIECE_BYTES_MAX:]
            self.unsent = data
        except ConnectionResetError:
            # Whoever sends more is told.
            pass

    async def stream(self, data):
        """Sends a part of the response, at the pace at which the client takes it."""
        data, self.unsent = self.unsent + data, b""
        for start in range(0, len(data), PIECE_BYTES_MAX):
            piece = data[start : start + PIECE_BYTES_MAX]
            while not self.request.stream(piece):
                await self.request.room_comes(len(piece))

    def result(self):
        """What is left of it, for the end of the call."""
        return b"" if self.streams else b"".join((framed(self.status, self.headers), *self.pieces))


def print_error(error):
    import traceback

    traceback.print_exception(users_part(error), limit=-STACK_FRAMES_MAX)


def asgi(app):
    from urllib.parse import unquote

    lifespan = Lifespan(app)

    def scope_of(call, head):
        # By a route it is reached at the whole path; else it is mounted at its function's own.
        root = "" if "route" in head or "function" not in call else "/function/" + call["function"]
        path = root + head.get("path", "/")
        return {
            "type": "http", "asgi": {"version": "3.0", "spec_version": "2.4"}, "http_version": "1.1",
            "method": head.get("method", "POST"), "scheme": head.get("scheme", "http"), "root_path": root,
            "path": unquote(path), "raw_path": path.encode(), "query_string": head.get("query", "").encode(),
            "headers": [(name.encode(), value.encode())
                        for name, value in head.get("headers") or ()],
            "client": (head["client"], 0) if "client" in head else None, "server": None, "state": dict(lifespan.state),
        }  # fmt: skip

    async def awaited(request, head, body):
        head = Head(head)
        exchange = Exchange(app, scope_of(head.call, head.http), body, head.call.get("body") == "stream")
        try:
            await exchange.run()
        except BaseException as error:
            raise users_part(error)  # noqa: B904
        return exchange.result()

    return on_loop(awaited)
