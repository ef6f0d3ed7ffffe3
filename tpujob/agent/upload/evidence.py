"""Chooses the lines that show why a program ended badly."""

from __future__ import annotations

import json
import re
from typing import Dict, List

from tpujob.protocol.limits import MAX_EVIDENCE, MAX_EVIDENCE_LINES

#: newest lines of output in which evidence is searched, and bytes of each
TAIL, TAIL_WIDTH = 2000, 400
LAST_WORDS = 15  #: last lines that are evidence if there is no traceback

#: lines that may name the cause of an end; `domain/failures/evidence.py` maps them to causes
TELLING = re.compile(
    rb"iommu|/dev/(?:vfio|accel)|libtpu|TPU is already|No accelerator found|resource busy"
    rb"|FAILED_PRECONDITION|Failed to initialize|initialization failed|all TPU hosts|uncorrectable"
    rb"|RESOURCE_EXHAUSTED|out of memory|memory space|hbm capacity|device buffer|MemoryError"
    rb"|bad_alloc|allocate memory|killed|No module named|not found$|\[tpujob\] |No space left"
    rb"|does not have storage|PERMISSION_DENIED|PollForError|coordination|unhealthy|heartbeat"
    rb"|barrier|by peer|by remote peer|another task|^\S*(?:Error|Exception)\b",
    re.IGNORECASE,
)
TRACEBACK = b"Traceback (most recent call last)"


def pick_lines(lines: List[bytes]) -> bytes:
    """Return the evidence of a report, in the order of the log: lines that match TELLING, and the last traceback or
    else the last lines. If room is short, the lines most likely to name the cause are kept."""
    telling = [i for i, line in enumerate(lines) if TELLING.search(line)]
    starts = [i for i, line in enumerate(lines) if line.startswith(TRACEBACK)]
    last_words = list(range(max(0, len(lines) - LAST_WORDS), len(lines)))
    if starts:
        after = range(starts[-1] + 1, len(lines))
        error = next((i for i in after if lines[i] and not lines[i][:1].isspace()), len(lines) - 1)
        last_words = [*range(starts[-1] + 1, error + 1), starts[-1]]
    ranked = [*last_words[-4:][::-1], *telling[-12:][::-1], *telling[:4], *last_words[-40:][::-1]]
    picked: Dict[int, str] = {}
    room = MAX_EVIDENCE - 64
    for i in ranked:
        text = lines[i].decode("utf-8", "replace")
        size = len(json.dumps(text)) + 1
        if i not in picked and size <= room:
            picked[i] = text
            room -= size
    return _encode([picked[i] for i in sorted(picked)])


def first_lines(lines: List[str]) -> bytes:
    """Return the evidence of a report from the first lines, as many as fit."""
    room = MAX_EVIDENCE - 64
    picked: List[str] = []
    for line in lines[:MAX_EVIDENCE_LINES]:
        room -= len(json.dumps(line[:TAIL_WIDTH])) + 1
        if room < 0:
            break
        picked.append(line[:TAIL_WIDTH])
    return _encode(picked)


def _encode(lines: List[str]) -> bytes:
    return json.dumps({"v": 1, "lines": lines}, separators=(",", ":")).encode()
