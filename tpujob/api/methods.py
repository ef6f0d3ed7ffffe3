"""Rows of the table of methods. The table is `JobsApi` itself: a row stands above each of its methods.

A method's signature and docstring are part of its row: client, routes and the OpenAPI document read its shapes there.
"""

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeVar

from tpujob.domain.access import AccessRule
from tpujob.domain.paging import PAGE

M = TypeVar("M", bound=Callable[..., Any])

#: of numbers the least and the greatest, else the greatest length
Bound = tuple[float | None, float | None] | int

LONG = 300.0  #: seconds for calls that read every record with its history
#: how large an argument of that name may be over HTTP
BOUNDS: Mapping[str, Bound] = {
    "attempt": (0, 1_000_000),
    "before": 100,
    "cursor": 32_768,
    "host": (0, 1_000_000),
    "limit": (1, PAGE),
    "line": (0, 10**12),
    "lines": (1, None),
    "of": (0, 1_000_000),
    "physical": 1000,
    "since": (0, 10**11),
    "tail": (0, 1_000_000),
    "value": 65_536,
    "width": (1, None),
}
HEADER = "idempotency_key"  #: the one argument that travels as a header


class Method(NamedTuple):
    """The HTTP request of a method, and the access rule for its callers."""

    name: str
    verb: str
    path: str  #: below `/v1`; a part in braces is the argument of that name
    rule: AccessRule
    tag: str  #: its group in the OpenAPI document
    function: Callable[..., Any]  #: of `JobsApi`
    doc: str
    bounds: Mapping[str, Bound]  #: as in `BOUNDS`
    defaults: Mapping[str, Any] = {}  #: of arguments over HTTP, where they differ
    query: tuple[str, ...] = ()  #: arguments in the query although the method has a body
    once: bool = False  #: a second call fails, so a client never repeats it by itself
    #: of the command line, for the same question; a refusal names it. Empty: it has the method's name
    command: str = ""
    within: float = 0.0  #: seconds that a client waits for the answer; 0: as for any short call
    status: int = 200  #: of a success

    @property
    def asked_by(self) -> str:
        """The command of the command line for the same question."""
        return f"tpujob {self.command or self.name}"

    @property
    def signature(self) -> inspect.Signature:
        return inspect.signature(self.function)

    @property
    def arguments(self) -> list[inspect.Parameter]:
        return [*self.signature.parameters.values()][1:]

    def place(self, argument: str) -> str:
        """Return the part of the request that carries an argument: `path`, `query`, `header` or `body`."""
        if f"{{{argument}}}" in self.path:
            return "path"
        if argument == HEADER:
            return "header"
        return "query" if self.verb in ("GET", "DELETE") or argument in self.query else "body"


def method(
    verb: str,
    path: str,
    rule: AccessRule,
    tag: str = "",
    bounds: Mapping[str, Bound] = {},
    **more: Any,
) -> Callable[[M], M]:
    """Attach a row to the decorated method. `bounds`: those that differ from `BOUNDS`. `more`: further fields of
    `Method`. The tag is by default `jobs`, or `one job` for a path with a job in it."""
    tag = tag or ("one job" if "{job}" in path else "jobs")

    def with_row(function: M) -> M:
        row = Method(
            name=function.__name__,
            verb=verb,
            path=path,
            rule=rule,
            tag=tag,
            function=function,
            doc=inspect.getdoc(function) or "",
            bounds={**BOUNDS, **bounds},
            **more,
        )
        setattr(function, "row", row)  # noqa: B010
        return function

    return with_row


def table(interface: type) -> dict[str, Method]:
    """Return the rows of the interface's methods, by name."""
    return {name: value.row for name, value in vars(interface).items() if hasattr(value, "row")}
