"""What a program tells: three files below `TPUJOB_OUT`. The agent reads and ships them."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from workloads.contract.context import ProgramContext

EVENTS = "events.jsonl"  #: appended to: phases, steps, checkpoints, metrics
HEARTBEAT = (
    "heartbeat.json"  #: replaced whole: an old time is dead, a fresh time with an old step is hung
)
DONE = "done"  #: the phase of a program that has reached its end
VERDICT = "verdict.json"  #: where a non-finite number came from

#: What made a non-finite number.
Blame = Literal["device", "data", "model"]


class Reporter:
    """Writes the three files. Cheap enough for every step: one line, flushed; the heartbeat at most once a second."""

    def __init__(self, context: ProgramContext) -> None:
        self.folder = Path(context.out)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._stamp: dict[str, Any] = {"attempt": context.attempt, "host": context.host}
        self._events = (self.folder / EVENTS).open("a", buffering=1, encoding="utf-8")
        self._beaten = 0.0

    def event(self, kind: str, /, **fields: Any) -> None:
        """Append one fact. Kinds: `phase` (name), `step` (step, loss, ms), `checkpoint` (step),
        `resume` (step), `metric` (name, value), `verdict`, `error`. JSON has no NaN: pass None.

        A program that exits with 0 after it was told to stop counts as finished only if it has said that it reached
        its end: a `step` that equals its `steps`, or the phase `DONE`."""
        now = time.time()
        record = {"t": round(now, 3), "kind": kind, **self._stamp, **fields}
        self._events.write(json.dumps(record, allow_nan=False) + "\n")
        if kind in ("phase", "step") and (kind == "phase" or now - self._beaten >= 1):
            self._beaten = now
            name = fields.get("name", "train")
            self.replace(HEARTBEAT, {"t": now, "phase": name, "step": fields.get("step")})

    def verdict(self, **fields: Any) -> None:
        """State where a non-finite number came from: `step, host, device, blame, text`. `blame` is empty if nobody
        knows; `host` is None if none is concerned, or nobody knows which."""
        self.replace(VERDICT, {"t": time.time(), **self._stamp, **fields})
        self.event("verdict", **fields)

    def replace(self, name: str, record: Mapping[str, Any]) -> None:
        """Put a file in place whole: a reader sees the old one or the new one, never a part."""
        path = self.folder / name
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(record, allow_nan=False), encoding="utf-8")
        temporary.replace(path)
