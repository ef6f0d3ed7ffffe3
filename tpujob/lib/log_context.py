"""The context of log lines: the request, the job and the attempt for which a thread or task works.

A context variable keeps it; `web/log.py` adds it to every line. Threads of a pool need `in_context(call)`.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

#: the facts of a line, in order
NAMES = ("job", "attempt", "request")
_about: ContextVar[Mapping[str, str] | None] = ContextVar("about", default=None)


@contextmanager
def about(**facts: str) -> Generator[None]:
    """Add these facts to the log lines within the `with` block."""
    token = _about.set({**(_about.get() or {}), **facts})
    try:
        yield
    finally:
        _about.reset(token)


def note(**facts: str) -> None:
    """Add these facts to the log lines up to the end of the surrounding `about`; without one, do nothing."""
    current = _about.get()
    if current is not None:
        _about.set({**current, **facts})


def facts() -> Mapping[str, str]:
    """Return the facts of the present context."""
    return _about.get() or {}


def in_context(call: Callable[P, T]) -> Callable[P, T]:
    """Return the call bound to the present context, for one use in another thread."""
    return partial(copy_context().run, call)
