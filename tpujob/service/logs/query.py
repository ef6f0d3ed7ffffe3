"""What a reader looks for in the lines of a log: a text, a pattern, or tracebacks."""

import contextlib
import json
import os
import select
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tpujob.errors import BadRequest, Transient
from tpujob.service.logs.lines import raw_of, tracebacks

LONGEST = 1000  #: characters of what is looked for
#: seconds of CPU that a pattern may take for one segment, of a mebibyte or so; a usual one takes a hundredth of that
PATIENCE = 3.0
#: seconds in which the process answers in any case: it yields to all else that this machine does
ANSWER = 60.0


@dataclass(frozen=True, slots=True)
class LogPattern:
    """A line matches as `grep` would say, before its escape sequences are taken away."""

    text: str = ""
    regexp: bool = False
    ignore_case: bool = False
    traceback: bool = False

    def __post_init__(self) -> None:
        """Raises BadRequest."""
        if self.traceback and self.text:
            raise BadRequest("a search is for a text or for tracebacks, not for both")
        if not self.traceback and not self.text:
            raise BadRequest("a search needs a text")
        if len(self.text) > LONGEST:
            raise BadRequest(f"a search takes at most {LONGEST:,} characters")


class Matcher(Protocol):
    def lines(self, data: bytes) -> list[int]:
        """Which of the stored lines match, from 0."""
        ...

    def spans(self, texts: list[str]) -> list[list[tuple[int, int]]]:
        """What of each text matches, so that it can be shown."""
        ...


@contextlib.contextmanager
def matcher(query: LogPattern) -> Generator[Matcher]:
    """Raises BadRequest for a pattern that is none, and when one takes too long; Transient when this machine has no
    time for it."""
    if query.traceback:
        yield _Tracebacks()
    elif query.regexp:
        process = _Process(query)
        try:
            yield process
        finally:
            process.close()
    else:
        yield _Literal(query)


class _Tracebacks:
    def lines(self, data: bytes) -> list[int]:
        return tracebacks(data)

    def spans(self, texts: list[str]) -> list[list[tuple[int, int]]]:
        return [[] for _ in texts]


class _Literal:
    def __init__(self, query: LogPattern) -> None:
        self._fold = query.ignore_case
        self._text = query.text.lower() if self._fold else query.text
        self._ascii = self._text.isascii()
        self._bytes = self._text.encode("utf-8", "replace")

    def lines(self, data: bytes) -> list[int]:
        if self._fold and not self._ascii:
            texts = raw_of(data).decode("utf-8", "replace").lower().split("\n")
            return [i for i, text in enumerate(texts) if self._text in text]
        data = data.lower() if self._fold else data
        if self._bytes not in data:
            return []
        sought = self._bytes
        maybe = [(i, line) for i, line in enumerate(data.split(b"\n")) if sought in line]
        return [i for i, line in maybe if sought in raw_of(line)]  # the time is no part of it

    def spans(self, texts: list[str]) -> list[list[tuple[int, int]]]:
        return [list(self._places(text)) for text in texts]

    def _places(self, text: str) -> Iterator[tuple[int, int]]:
        text = text.lower() if self._fold else text
        at = text.find(self._text)
        while at >= 0:
            yield at, at + len(self._text)
            at = text.find(self._text, at + len(self._text))


class _Process:
    """A pattern, in a process that is ended when it takes too long: nothing else could end it."""

    def __init__(self, query: LogPattern) -> None:
        script = str(Path(__file__).with_name("regexp_process.py"))
        self._pattern = query.text
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        asked = {
            "pattern": query.text, "ignore_case": query.ignore_case, "patience": PATIENCE
        }  # fmt: skip
        try:
            error = self._ask(json.dumps(asked).encode())["error"]
            if error:
                raise BadRequest(
                    f"{query.text[:80]!r} is no pattern: {error}",
                    hint="Patterns are those of Python's `re`; without --regexp the text is meant as it is.",
                )
        except BaseException:
            self.close()
            raise

    def lines(self, data: bytes) -> list[int]:
        return self._ask(b"\n" + data)

    def spans(self, texts: list[str]) -> list[list[tuple[int, int]]]:
        return [[(a, b) for a, b in spans] for spans in self._ask(json.dumps(texts).encode())]

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                assert pipe
                pipe.close()

    def _ask(self, request: bytes) -> Any:
        source, target = self._process.stdin, self._process.stdout
        assert source
        assert target
        until = time.monotonic() + ANSWER
        try:
            source.write(struct.pack("!I", len(request)) + request)
            source.flush()
            (size,) = struct.unpack("!I", self._take(target.fileno(), 4, until))
            return json.loads(self._take(target.fileno(), size, until))
        except (BrokenPipeError, struct.error, ValueError):
            raise self._ended() from None

    def _ended(self) -> BadRequest:
        """Why the process is over, which has closed its pipes."""
        late = self._process.wait() == -signal.SIGPROF
        return BadRequest(
            f"the pattern {self._pattern[:80]!r} takes "
            + (f"more than {PATIENCE:g} s for a piece of the log" if late else "too much memory"),
            hint="Say it without a repeat inside a repeat, as in (a+)+, or look for a plain text.",
        )

    def _take(self, descriptor: int, size: int, until: float) -> bytes:
        """Exactly so many bytes, fewer at the end."""
        ready = select.poll()
        ready.register(descriptor, select.POLLIN)
        parts: list[bytes] = []
        while size > 0:
            if not ready.poll(max(0.0, until - time.monotonic()) * 1000):
                raise Transient(
                    f"the search had no answer for {ANSWER:g} s: the machine of the backend has too much to do",
                    hint="Try again, or look for a plain text.",
                )
            part = os.read(descriptor, size)
            if not part:
                break
            parts.append(part)
            size -= len(part)
        return b"".join(parts)
