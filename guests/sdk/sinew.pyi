# SPDX-License-Identifier: Apache-2.0
# Written by `sinew sdk python`: it is written over by the next one.
"""Types of the module `sinew`, for editors and type checkers."""

from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping
from typing import Any, Generic, Literal, NoReturn, ParamSpec, TypeVar, overload

_P = ParamSpec("_P")
_R = TypeVar("_R")
_R_co = TypeVar("_R_co", covariant=True)
_Body = TypeVar("_Body", bound=Callable[..., Any])

class CallError(Exception):
    """A call of a function that gave no answer, or one with a status of 400 and more."""

    function: str
    status: int
    body: bytes
    component: str
    reason: str
    request_id: str
    suggestion: str
    def __init__(self, function: str, status: int, kind: str, body: bytes) -> None: ...

def call(name: str, payload: Any = None) -> Any:
    """Calls the function of a name, in whatever language it is, and gives what it returns. Raises `CallError`."""

async def call_async(name: str, payload: Any = None) -> Any:
    """The same for handlers that are coroutines."""

class StepError(Exception):
    """A step that has no result: it has failed, or an earlier one that it needs."""

    function: str
    step: int
    reason: str
    def __init__(self, function: str, step: int, reason: str) -> None: ...

class Step(Generic[_R_co]):
    """The result of a call in a workflow, before it is there. Passing it on to other functions does not wait for it."""

    function: str
    number: int
    def result(self, timeout: float | None = None) -> _R_co:
        """Waits for what the function returned, or raises `StepError`; `TimeoutError` after so many seconds."""
    def __await__(self) -> Generator[Any, None, _R_co]: ...
    def __bool__(self) -> NoReturn: ...

class Function(Generic[_P, _R]):
    """A function whose calls are steps where a workflow makes them; elsewhere `function.__wrapped__` is the function itself."""

    __wrapped__: Callable[_P, _R | Coroutine[Any, Any, _R]]
    @overload
    def __call__(self, *arguments: _P.args, **named: _P.kwargs) -> Step[_R]: ...
    @overload
    def __call__(self, *arguments: Any, **named: Any) -> Step[_R]: ...
    def map(self, *iterables: Iterable[Any]) -> list[Step[_R]]:
        """A step for each element, or for each that several have at the same place."""
    def options(
        self,
        *,
        memory: str | int | None = None,
        timeout: str | float | None = None,
        cpu: float | None = None,
        concurrency: int | None = None,
        retries: int | None = None,
        retry_delay: str | float | None = None,
        pure: bool | Literal["exact"] | None = None,
        isolated: bool | None = None,
    ) -> Function[_P, _R]:
        """The same function, run in another way."""

class _Decorator:
    @overload
    def __call__(self, body: Callable[_P, Coroutine[Any, Any, _R]]) -> Function[_P, _R]: ...
    @overload
    def __call__(self, body: Callable[_P, _R]) -> Function[_P, _R]: ...

@overload
def function(body: Callable[_P, Coroutine[Any, Any, _R]]) -> Function[_P, _R]:
    """Makes a function one whose calls are steps: `@function` or `@function(memory="1GiB", retries=2)`."""

@overload
def function(body: Callable[_P, _R]) -> Function[_P, _R]: ...
@overload
def function(
    body: None = None,
    *,
    memory: str | int | None = None,
    timeout: str | float | None = None,
    cpu: float | None = None,
    concurrency: int | None = None,
    retries: int | None = None,
    retry_delay: str | float | None = None,
    pure: bool | Literal["exact"] | None = None,
    isolated: bool | None = None,
) -> _Decorator: ...
def workflow(body: _Body) -> _Body:
    """Marks the function that is a workflow. On a node it is one by `workflow = true`; elsewhere it runs in this process."""

@overload
def isolated(step: Step[_R]) -> Step[_R]:
    """The result of a step, for a function that shall have nothing of the memory in which it was made: it is pickled."""

@overload
def isolated(step: _R) -> _R: ...

class Http:
    """The HTTP side of a request."""

    method: str
    scheme: str
    client: str | None
    path: str
    query_string: str
    route: str | None
    params: dict[str, str]
    @property
    def query(self) -> dict[str, str]:
        """Names and values; of a name that occurs twice the last value."""
    @property
    def headers(self) -> dict[str, str]:
        """Lower-case names and values; those of one name are joined by commas."""

class Context:
    """What a handler may know about its call: `def handler(event, context: sinew.Context)`."""

    request_id: str
    aws_request_id: str
    function_name: str
    function_version: int
    memory_limit_in_mb: int
    def get_remaining_time_in_millis(self) -> int: ...
    @property
    def http(self) -> Http: ...
    @property
    def cloud_event(self) -> dict[str, str] | None:
        """The attributes of the CloudEvent that the request is; None if it is none."""

def local_context(
    *,
    request_id: str = ...,
    function_name: str = "local",
    function_version: int = 1,
    timeout: str | float = "60s",
    memory: str | int = "256MiB",
    method: str = "POST",
    path: str = "/",
    query: str = "",
    headers: Mapping[str, str] | Iterable[tuple[str, str]] | None = None,
    route: str | None = None,
    params: Mapping[str, str] | None = None,
    scheme: str = "http",
    client: str | None = None,
) -> Context:
    """What a handler is given as its context, for a test. It is here alone, and not on a node."""
