"""Searches text for a pattern in a process of its own, as a pattern may take for ever: it is ended then, by a signal.

Standard library only: it is run by its path, without the package. Each request and each answer is a length in four
bytes and JSON in UTF-8; after the first, which has the pattern and the seconds of CPU that each request may take, a
request may be bytes: stored lines.
"""

import json
import os
import re
import resource
import signal
import struct
import sys
from itertools import islice
from typing import BinaryIO

MEMORY = 1 << 30  #: bytes of address space
NICE = 10
MOST_SPANS = 50  #: of one text

_STAMP = re.compile(r"^(?:\d{1,11}\.\d{3} )?", re.MULTILINE)


def main(requests: BinaryIO, answers: BinaryIO) -> None:
    os.nice(NICE)  # a costly pattern waits for the backend's own work
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    asked = json.loads(_read(requests) or b"{}")
    _limit(asked["patience"])
    try:
        sought = re.compile(asked["pattern"], re.IGNORECASE if asked["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError, MemoryError) as error:
        _write(answers, {"error": str(error) or type(error).__name__})
        return
    _write(answers, {"error": ""})
    while request := _read(requests):
        _limit(asked["patience"])
        if request[:1] == b"[":
            texts: list[str] = json.loads(request)
            _write(answers, [_spans(sought, text) for text in texts])
        else:
            lines = _STAMP.sub("", request[1:].decode("utf-8", "replace")).split("\n")
            _write(answers, [i for i, line in enumerate(lines[:-1]) if sought.search(line)])


def _limit(seconds: float) -> None:
    """Of CPU, from now on, after which SIGPROF ends this process, also within `re`. Wall time would also count what a
    busy machine does for others."""
    signal.setitimer(signal.ITIMER_PROF, seconds)


def _spans(sought: re.Pattern[str], text: str) -> list[tuple[int, int]]:
    return [found.span() for found in islice(sought.finditer(text), MOST_SPANS)]


def _read(stream: BinaryIO) -> bytes:
    size = stream.read(4)
    return stream.read(struct.unpack("!I", size)[0]) if len(size) == 4 else b""


def _write(stream: BinaryIO, answer: object) -> None:
    data = json.dumps(answer).encode()
    stream.write(struct.pack("!I", len(data)) + data)
    stream.flush()


if __name__ == "__main__":
    main(sys.stdin.buffer, sys.stdout.buffer)
