"""Chooses the lines that show why a program ended badly."""

from __future__ import annotations

import json
import re
from typing import Dict, List

from tpujob.protocol.limits import MAX_EVIDENCE, MAX_EVIDENCE_LINES

TAIL, TAIL_WIDTH = 2000, 400  #: lines of output that are kept for evidence, and bytes of each
LAST_WORDS = 15  #: lines of evidence of a program that ended without a traceback

#: lines that may name the cause of an end; `domain/failures/signs.py` says which one
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
    """What shows why a program ended badly, as the body of its report: the telling lines, the last traceback or else
    the last words, in the order of the log; the more telling first where there is no room for all."""
    telling = [i for i, line in enumerate(lines) if TELLING.search(line)]
    starts = [i for i, line in enumerate(lines) if line.startswith(TRACEBACK)]
    last_words = list(range(max(0, len(lines) - LAST_WORDS), len(lines)))
    if starts:
        after = range(starts[-1] + 1, len(lines))
        error = next((i for i in after if lines[i] and not lines[i][:1].isspace()), len(lines) - 1)
        last_words = [*range(starts[-1] + 1, error + 1), starts[-1]]
    wanted = [*last_words[-4:][::-1], *telling[-12:][::-1], *telling[:4], *last_words[-40:][::-1]]
    kept: Dict[int, str] = {}
    room = MAX_EVIDENCE - 64
    for i in wanted:
        text = lines[i].decode("utf-8", "replace")
        size = len(json.dumps(text)) + 1
        if i not in kept and size <= room:
            kept[i], room = text, room - size
    return _body([kept[i] for i in sorted(kept)])


def first_lines(lines: List[str]) -> bytes:
    """As many of these as fit into a report's body."""
    room = MAX_EVIDENCE - 64
    kept: List[str] = []
    for line in lines[:MAX_EVIDENCE_LINES]:
        room -= len(json.dumps(line[:TAIL_WIDTH])) + 1
        if room < 0:
            break
        kept.append(line[:TAIL_WIDTH])
    return _body(kept)


def _body(lines: List[str]) -> bytes:
    return json.dumps({"v": 1, "lines": lines}, separators=(",", ":")).encode()
