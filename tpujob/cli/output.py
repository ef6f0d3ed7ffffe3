"""The output of commands: lines to standard output, remarks to standard error, JSON, and whether colour is used."""

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
    """Raised when standard output was closed: the command ends without a message."""


@dataclass(frozen=True, slots=True)
class Screen:
    """The terminal, or the file or pipe, that a command writes to."""

    columns: int = 80
    rows: int = 24
    tty: bool = False  #: standard output is a terminal
    color: bool = False  #: on standard output
    err_color: bool = False  #: on standard error
    asks: bool = False  #: a person can be asked: standard input and error are a terminal


def get_screen() -> Screen:
    """Return the state of the terminal at this moment."""
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
    """Write to standard output. Raises OutputClosed when its reader has gone, TpujobError when writing fails."""
    try:
        sys.stdout.write(text + end)
        if flush:
            sys.stdout.flush()
    except OSError as error:
        raise _output_error(error) from None


def say_bytes(data: bytes) -> None:
    """Write bytes to standard output. Raises as `say` does."""
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
    except OSError as error:
        raise _output_error(error) from None


def flush() -> None:
    """Write out buffered output. Raises as `say` does."""
    try:
        sys.stdout.flush()
    except OSError as error:
        raise _output_error(error) from None


def _output_error(error: OSError) -> Exception:
    """Return the error to raise. Send later output to /dev/null, or the interpreter fails again at its exit."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return OutputClosed()
    return TpujobError(f"the output cannot be written: {error.strerror}")


def note(text: str) -> None:
    """Write a remark to standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def json_text(value: Any, indent: int | None = None) -> str:
    """Return the value as JSON; characters that a terminal obeys or does not show are escaped."""
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    return HARMFUL.sub(lambda character: json.dumps(character[0])[1:-1], text)


def say_json(value: Any) -> None:
    """Print one record as an object, several as a list."""
    say(json_text(value, indent=2))


def say_page(record: Any, page: Callable[..., str], as_json: bool, **options: Any) -> None:
    """Print the record as JSON, or as the text that `page` returns for this screen."""
    if as_json:
        say_json(record)
        return
    screen = get_screen()
    say(page(record, screen.columns, color=screen.color, **options))


def say_json_line(value: Any) -> None:
    """Print one record as a line of JSON, for commands that keep printing."""
    say(json_text(value), flush=True)


def say_json_list(values: Iterable[Any]) -> None:
    """Print a list of JSON while it is produced, so that a long one takes no memory."""
    opening = "["
    for value in values:
        say(opening + "\n" + json_text(value), end="")
        opening = ","
    say("\n]" if opening == "," else "[]")
