"""The reports of a program: three files below `TPUJOB_OUT`, which the agent reads and ships."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from tpujob.contract.context import ProgramContext

EVENTS = "events.jsonl"  #: appended to: phases, steps, checkpoints, metrics
#: replaced whole: an old time means a dead program, a fresh time with an old step a hung one
HEARTBEAT = "heartbeat.json"
DONE = "done"  #: the phase of a program that has reached its end
REPLAY = "replay"  #: the phase of one that looks for what made a number that is not finite
VERDICT = "verdict.json"  #: where a non-finite number came from

#: What made a non-finite number.
Blame = Literal["device", "data", "model"]


class Reporter:
    """Writes the three files. Cheap enough for every step: one line; the heartbeat at most once a second.

    A file that cannot be written, as on a full disk, ends nothing: what did not fit is lost, stderr says so once, and
    the next is tried again."""

    def __init__(self, context: ProgramContext) -> None:
        self.folder = Path(context.out)
        self._stamp: dict[str, Any] = {"attempt": context.attempt, "host": context.host}
        self._events = -1  # a file descriptor, once the file is open
        self._torn = False  # the last line of the events has no end
        self._told = False
        self._beaten = 0.0

    def event(self, kind: str, /, **fields: Any) -> None:
        """Append one fact. Kinds: `phase` (name), `step` (step, loss, ms), `checkpoint` (step),
        `resume` (step), `damaged` (the checkpoint of that step, message), `metric` (name, value), `verdict`,
        `error`. JSON has no NaN: a number that is not finite is written as a text, such as `nan`.

        A program that exits with 0 after a request to stop counts as finished only if it has reported its
        end: a `step` that equals its `steps`, or the phase `DONE`."""
        now = time.time()
        finite = {k: str(v) if _is_nonfinite(v) else v for k, v in fields.items()}
        record = {"t": round(now, 3), "kind": kind, **self._stamp, **finite}
        self._append(json.dumps(record, allow_nan=False).encode() + b"\n")
        if kind in ("phase", "step") and (kind == "phase" or now - self._beaten >= 1):
            self._beaten = now
            name = fields.get("name", "train")
            self.replace(HEARTBEAT, {"t": now, "phase": name, "step": fields.get("step")})

    def verdict(self, **fields: Any) -> None:
        """State where a non-finite number came from: `step, host, device, blame, text`. `blame` is empty if
        unknown; `host` is None if no host is at fault, or it is unknown which."""
        self.replace(VERDICT, {"t": time.time(), **self._stamp, **fields})
        self.event("verdict", **fields)

    def replace(self, name: str, record: Mapping[str, Any]) -> None:
        """Put a file in place whole: a reader sees the old one or the new one, never a part."""
        path = self.folder / name
        temporary = path.with_suffix(".tmp")
        text = json.dumps(record, allow_nan=False)
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary.write_text(text, encoding="utf-8")
            temporary.replace(path)
        except OSError as error:
            self._lost(error)

    def _append(self, line: bytes) -> None:
        try:
            if self._events < 0:
                self.folder.mkdir(parents=True, exist_ok=True)
                how = os.O_WRONLY | os.O_CREAT | os.O_APPEND
                self._events = os.open(str(self.folder / EVENTS), how, 0o644)
            line = b"\n" + line if self._torn else line
            self._torn = os.write(self._events, line) < len(line)
            if self._torn:
                raise OSError("a part of a line was written to %s" % EVENTS)
        except OSError as error:
            self._lost(error)

    def _lost(self, error: OSError) -> None:
        if not self._told:
            self._told = True
            sys.stderr.write("going on, though not all is reported: %s\n" % error)


def _is_nonfinite(value: object) -> bool:
    return isinstance(value, float) and not math.isfinite(value)
