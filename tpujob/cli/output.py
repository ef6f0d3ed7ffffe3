"""Where output goes: lines to standard output, remarks to standard error, JSON, and whether there is colour."""

import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tpujob.domain.text import HARMFUL
from tpujob.errors import TpujobError


class OutputClosed(Exception):
    """Standard output was closed: the command ends without a message."""


@dataclass(frozen=True, slots=True)
class Screen:
    """What the command writes to."""

    columns: int = 80
    rows: int = 24
    tty: bool = False  #: standard output is a terminal
    color: bool = False  #: on standard output
    err_color: bool = False  #: on standard error
    asks: bool = False  #: a person can be asked: standard input and error are a terminal


def screen() -> Screen:
    """The terminal as it is now."""
    from tpujob.config import settings

    size = shutil.get_terminal_size((80, 24))
    plain = settings.no_color()
    out, err = sys.stdout.isatty(), sys.stderr.isatty()
    return Screen(
        columns=size.columns,
        rows=size.lines,
        tty=out,
        color=out and not plain,
        err_color=err and not plain,
        asks=err and sys.stdin.isatty(),
    )


def say(text: str, *, end: str = "\n", flush: bool = False) -> None:
    """Write to standard output. Raises OutputClosed when its reader is gone, TpujobError when writing fails."""
    try:
        sys.stdout.write(text + end)
        if flush:
            sys.stdout.flush()
    except OSError as error:
        raise _lost(error) from None


def say_bytes(data: bytes) -> None:
    """To standard output, as they are. Raises as `say` does."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
    except OSError as error:
        raise _lost(error) from None


def flush() -> None:
    """Write out what is buffered. Raises as `say` does."""
    try:
        sys.stdout.flush()
    except OSError as error:
        raise _lost(error) from None


def _lost(error: OSError) -> Exception:
    """Return the error to raise; output then goes to /dev/null, or the interpreter would fail again at its exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return OutputClosed()
    return TpujobError(f"the output cannot be written: {error.strerror}")


def note(text: str) -> None:
    """To standard error: remarks, not results."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def json_text(value: Any, indent: int | None = None) -> str:
    """As JSON, in which what a terminal obeys or does not show is escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return HARMFUL.sub(lambda found: json.dumps(found[0])[1:-1], text)


def say_json(value: Any) -> None:
    """One record as an object, several as a list."""
    say(json_text(value, indent=2))


def say_page(found: Any, page: Callable[..., str], as_json: bool, **options: Any) -> None:
    """As JSON, or as the page that `page` makes of it for this screen."""
    on = screen()
    say_json(found) if as_json else say(page(found, on.columns, color=on.color, **options))


def say_json_line(value: Any) -> None:
    """One record on one line, for commands that go on: each line is an object."""
    say(json_text(value), flush=True)


def say_json_list(values: Iterable[Any]) -> None:
    """A list that is written as it comes, so that a long one takes no memory."""
    opening = "["
    for value in values:
        say(opening + "\n" + json_text(value), end="")
        opening = ","
    say("\n]" if opening == "," else "[]")
