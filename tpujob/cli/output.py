"""Where output goes: lines to standard output, remarks to standard error, JSON, and whether there is colour."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


class OutputClosed(Exception):
    """Nobody reads standard output any more: the command ends, quietly."""


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
    """The terminal, or its absence, as it is now."""
    from tpujob import settings

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
    """To standard output. Raises OutputClosed when nobody reads it."""
    try:
        sys.stdout.write(text + end)
        if flush:
            sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosed from None


def flush() -> None:
    """What was said is out. Raises OutputClosed when nobody reads it."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise OutputClosed from None


def note(text: str) -> None:
    """To standard error: remarks that are no result."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def say_json(value: Any) -> None:
    """One record as an object, several as a list."""
    say(json.dumps(value, indent=2, ensure_ascii=False))


def say_json_line(value: Any) -> None:
    """One record on one line, for commands that go on: each line is an object."""
    say(json.dumps(value, ensure_ascii=False), flush=True)


def say_json_list(values: Iterable[Any]) -> None:
    """A list that is written as it comes, so that a long one takes no memory."""
    opening = "["
    for value in values:
        say(opening + "\n" + json.dumps(value, ensure_ascii=False), end="")
        opening = ","
    say("\n]" if opening == "," else "[]")
