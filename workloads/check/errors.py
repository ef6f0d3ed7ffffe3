"""Parses messages of the compiler."""

from __future__ import annotations

import re
from typing import NamedTuple

from workloads.check.finding import GIB, memory


class OutOfMemory(NamedTuple):
    needed: int  #: bytes of one device; 0: the message does not say
    text: str


#: After a few seconds, before anything is scheduled; the number has the arguments in it, despite its words.
_EARLY = re.compile(
    r"total memory required for HLO temporaries \(([0-9.]+)([KMGT])\) exceeds available HBM"
)
#: After everything was scheduled.
_LATE = re.compile(r"Used ([0-9.]+)([KMGT]) of [0-9.]+[KMGT] hbm")
_UNITS = {"K": 2**10, "M": 2**20, "G": GIB, "T": 2**40}


def out_of_memory(text: str) -> OutOfMemory | None:
    """Return the facts about HBM in a message of the compiler; None for other messages, such as a kernel whose blocks
    do not fit into the memory on the chip."""
    match = _EARLY.search(text) or _LATE.search(text)
    if match is not None:
        needed = int(float(match[1]) * _UNITS[match[2]])
        return OutOfMemory(needed, f"it needs {memory(needed)}")
    if "RESOURCE_EXHAUSTED" in text and re.search(r"\bhbm\b", text, re.IGNORECASE):
        return OutOfMemory(0, first_line(text))
    return None


def first_line(text: str) -> str:
    """Return the first line that is not blank, cut to 200 characters."""
    lines = (line.strip() for line in text.splitlines())
    return next((line for line in lines if line), "nothing was said")[:200]


def last_line(text: str) -> str:
    """Return the last line that is not blank, cut to 200 characters."""
    return first_line("\n".join(reversed(text.splitlines())))
