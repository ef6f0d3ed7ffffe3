"""What the lines of a log are about: the request, the job and the attempt that the code at hand works for.

A context variable keeps it for the thread or task, so that a caller of the log need not know it. `web/log.py` writes
it. Threads of a pool begin without it: hand them `carried(call)`.
"""

from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

#: in the order in which a line has them
NAMES = ("job", "attempt", "request")
_about: ContextVar[Mapping[str, str] | None] = ContextVar("about", default=None)


@contextmanager
def about(**facts: str) -> Generator[None]:
    """Within it, lines are about this, too."""
    token = _about.set({**(_about.get() or {}), **facts})
    try:
        yield
    finally:
        _about.reset(token)


def note(**facts: str) -> None:
    """From here to the end of the surrounding `about`, lines are about this, too. Without one it does nothing."""
    known = _about.get()
    if known is not None:
        _about.set({**known, **facts})


def known() -> Mapping[str, str]:
    """What a line written here is about."""
    return _about.get() or {}


def carried(call: Callable[P, T]) -> Callable[P, T]:
    """The same call, for one use in another thread: its lines are about what the caller's are."""
    return partial(copy_context().run, call)
