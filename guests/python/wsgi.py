# SPDX-License-Identifier: Apache-2.0
# WSGI applications as handlers (PEP 3333): Flask, Django and others. It is run before `function.py`, in the same
# module: names that are not defined here are that one's, or the template's.

import io


def wsgi(app):
    def apply(_, head, body):
        head, request = Head(head), exchange()  # noqa: F821 - the template's
        answer = Answer(request)
        try:
            answer.run(app, environ_of(request, head, body))
        except BaseException as error:
            raise users_part(error)  # noqa: B904
        return answer.result()

    return apply


def environ_of(request, head, body):
    """What the application is told of a request."""
    from urllib.parse import unquote_to_bytes

    call, http = head.call, head.http
    comes_later, scheme = call.get("body") == "stream", http.get("scheme", "http")
    port = "443" if scheme == "https" else "80"
    environ = {
        "REQUEST_METHOD": http.get("method", "POST"),
        # By a route it is reached at the whole path; else it is mounted at its function's own.
        "SCRIPT_NAME": "" if "route" in http or "function" not in call else "/function/" + call["function"],
        # Bytes, each as the character of that number.
        "PATH_INFO": unquote_to_bytes(http.get("path", "/")).decode("latin-1"),
        "QUERY_STRING": native(http.get("query", "")),
        "SERVER_PROTOCOL": "HTTP/1.1", "SERVER_NAME": "localhost", "SERVER_PORT": port,
        "REMOTE_ADDR": http.get("client", ""),
        "wsgi.version": (1, 0), "wsgi.url_scheme": scheme, "wsgi.errors": sys.stderr,
        "wsgi.input": io.BufferedReader(Body(request)) if comes_later else io.BytesIO(body),
        # It ends where the body does, whatever length was told.
        "wsgi.input_terminated": True,
        "wsgi.multithread": calls_at_once > 1, "wsgi.multiprocess": True, "wsgi.run_once": False,
    }  # fmt: skip
    for name, value in http.get("headers") or ():
        # One with a low line would pass for one with a hyphen.
        if "_" in name:
            continue
        key = name.upper().replace("-", "_")
        if key not in ("CONTENT_TYPE", "CONTENT_LENGTH"):
            key = "HTTP_" + key
        between = "; " if name == "cookie" else ","
        value = native(value)
        environ[key] = environ[key] + between + value if key in environ else value
    if not comes_later:
        environ["CONTENT_LENGTH"] = str(len(body))
    if host := environ.get("HTTP_HOST"):
        # An IPv6 address has colons of its own.
        name, colon, told = host.rpartition(":")
        environ["SERVER_NAME"], environ["SERVER_PORT"] = (name, told) if colon and told.isdecimal() else (host, port)
    return environ


def native(text):
    """A text whose characters stand for bytes."""
    return text if text.isascii() else text.encode("utf-8", "surrogateescape").decode("latin-1")


class Body(io.RawIOBase):
    """A request's body that comes while it is read."""

    def __init__(self, request):
        self.request, self.piece, self.is_whole = request, b"", False

    def readable(self):
        return True

    def readinto(self, place):
        while not self.piece and not self.is_whole:
            piece = self.request.take_body()
            if piece is None:
                self.request.wait_for_body()
            else:
                self.piece, self.is_whole = piece, not piece
        size = min(len(place), len(self.piece))
        place[:size], self.piece = self.piece[:size], self.piece[size:]
        return size


class Answer:
    """What an application answers to one request."""

    def __init__(self, request):
        self.request = request
        self.status, self.headers, self.length = None, [], None
        # What is kept of the body, or else whether it is sent while it is made.
        self.pieces, self.size, self.streams = [], 0, False

    def run(self, app, environ):
        made = app(environ, self.start_response)
        try:
            # Who says how long it is, or that it is all there, is answered at once.
            is_whole = isinstance(made, (list, tuple)) or getattr(made, "streaming", None) is False
            for piece in made:
                if piece:
                    self.add(piece, is_whole or (self.length is not None and self.length <= KEPT_BYTES_MAX))
        finally:
            if hasattr(made, "close"):
                made.close()
        if self.status is None:
            raise RuntimeError("the application returned without calling start_response")

    def start_response(self, status, headers, exc_info=None):
        if exc_info:
            try:
                if self.streams:
                    raise exc_info[1].with_traceback(exc_info[2])
            finally:
                # Else it would hold the frame that holds it.
                exc_info = None
            # What was kept of the other answer.
            self.pieces, self.size = [], 0
        elif self.status is not None:
            raise RuntimeError("start_response was called twice, the second time without exc_info")
        self.status, self.headers, self.length = checked_status(status[:3]), [], None
        for name, value in headers:
            if name.lower() == "content-length" and value.isdecimal():
                self.length = int(value)
            add_header(self.headers, name, value)
        return lambda data: self.add(data, False)

    def add(self, piece, is_awaited):
        """The next bytes of the body: kept, if the rest is sure to come soon."""
        if self.status is None:
            raise RuntimeError("a piece of the response's body came before start_response was called")
        self.size += len(piece)
        if self.size > STREAM_BYTES_MAX:
            raise ValueError(f"the response is longer than {STREAM_BYTES_MAX} bytes")
        if self.streams:
            return self.stream(piece)
        self.pieces.append(piece)
        if not is_awaited or self.size > KEPT_BYTES_MAX:
            head = framed(self.status, self.headers)
            if len(head) > PIECE_BYTES_MAX:
                raise ValueError(f"the headers have {len(head)} bytes; a stream's have at most {PIECE_BYTES_MAX}")
            self.streams, pieces, self.pieces = True, self.pieces, []
            self.stream(b"".join((head, *pieces)))

    def stream(self, data):
        """Sends a part of the body, at the pace at which the client takes it."""
        for start in range(0, len(data), PIECE_BYTES_MAX):
            piece = data[start : start + PIECE_BYTES_MAX]
            while not self.request.stream(piece):
                self.request.wait_for_room(len(piece))

    def result(self):
        """What is left of it, for the end of the call."""
        return b"" if self.streams else b"".join((framed(self.status, self.headers), *self.pieces))
