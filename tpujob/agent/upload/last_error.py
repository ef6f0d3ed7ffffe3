"""Finds an error at the end of the output of a program that ended with 0."""

from __future__ import annotations

import re
from typing import List

from tpujob.protocol.text import visible

LAST = 15  #: lines at the end of the output in which an error counts
WIDTH = 300  #: characters of it

_TRACEBACK = "Traceback (most recent call last):"
_NOT_FOUND = re.compile(r"\S*(?:ba|da|z)?sh: .*: (?:command )?not found")
#: lines that are not the program's
_TAGS = (b"[tpujob] ", b"[setup] ", b"[env] ")


def find_last_error(tail: List[bytes]) -> str:
    """Return the line of the last traceback that names its error, or of the last command that was not found; empty:
    there is none in the last lines."""
    lines = [
        visible(line.decode("utf-8", "replace")) for line in tail if not line.startswith(_TAGS)
    ]
    errors = [at for at, line in enumerate(lines) if _NOT_FOUND.fullmatch(line)]
    for start, line in enumerate(lines):
        # in front of every line of it, such as `[rank0]: `
        before, title, _ = line.partition(_TRACEBACK)
        if title and not before.endswith("Group "):
            frame = re.compile(re.escape(before) + r"\s")
            rest = range(start + 1, len(lines))
            errors += [at for at in rest if not frame.match(lines[at])][:1]
    last = max(errors, default=-1)
    return lines[last].strip()[:WIDTH] if last >= max(0, len(lines) - LAST) else ""
