"""What tpujob and a program that it runs on every host promise each other.

In: `TPUJOB_*` variables (all optional, so that a program also runs by hand) and SIGTERM for "save now".
Out: three files under `TPUJOB_OUT` and one exit code. Read by both sides; standard library only.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any


class Exit(IntEnum):
    """The exit codes of a program; tpujob decides by them and never by a line of log."""

    DONE = 0  #: finished; the job succeeds when every host says so
    NONFINITE = 65  #: NaN or Inf, and a replay says that the model or the data made it
    ERROR = 70  #: any other error
    DEVICE = 71  #: NaN or Inf, and a replay says that a device made it; `verdict.json` names it
    INTERRUPTED = 75  #: told to stop; a checkpoint is committed; run me again
    PEER = 76  #: another host died; look there for the cause
    CONFIG = 78  #: bad configuration; running it again cannot help


@dataclass(frozen=True, slots=True)
class Context:
    """Where this process stands in its job. Outside tpujob it is one host of one, in `./run`."""

    job: str = "local"
    attempt: int = 1  #: numbered from 1
    host: int = 0  #: numbered from 0
    hosts: int = 1
    coordinator: str = (
        ""  #: `address:port` of host 0's rendezvous; empty: none is needed, or discover it
    )
    workdir: str = "run"  #: outlives the slice: a folder or a `gs://` URL; checkpoints go under it
    cache: str = ""  #: a folder for compiled programs, kept across attempts; empty: none
    data: str = ""  #: where `data:` was put; empty: none
    out: str = "run"  #: this attempt's folder on this host; the three files go here
    fault: str = ""  #: a drill, such as `nan:step=7,device=5`; empty: none
    resume_before: int = 0  #: only a checkpoint of an earlier step may be resumed from; 0: any
    slice: int = (
        0  #: the TPU slice of this host, numbered from 0; hosts are numbered through all of them
    )
    slices: int = 1  #: more than one: Multislice

    @staticmethod
    def from_env(env: Mapping[str, str] | None = None) -> Context:
        """The context that the agent put into the environment. Raises ValueError for a number that is none."""
        env = os.environ if env is None else env
        fields = Context.__dataclass_fields__
        given = {k: env[f"TPUJOB_{k.upper()}"] for k in fields if env.get(f"TPUJOB_{k.upper()}")}
        whole = ("attempt", "host", "hosts", "resume_before", "slice", "slices")
        numbers = {k: int(given[k]) for k in whole if k in given}
        return Context(**{**given, **numbers})  # pyright: ignore[reportArgumentType]

    def to_env(self) -> dict[str, str]:
        """The variables from which `from_env` reads this context back."""
        return {f"TPUJOB_{k.upper()}": str(getattr(self, k)) for k in self.__dataclass_fields__}


class Reporter:
    """Writes the three files. Cheap enough for every step: one line, flushed; the heartbeat at most once a second."""

    def __init__(self, context: Context) -> None:
        self.folder = Path(context.out)
        self.folder.mkdir(parents=True, exist_ok=True)
        self._stamp: dict[str, Any] = {"attempt": context.attempt, "host": context.host}
        self._events = (self.folder / "events.jsonl").open("a", buffering=1, encoding="utf-8")
        self._beaten = 0.0

    def event(self, kind: str, /, **fields: Any) -> None:
        """Append one fact. Kinds: `phase` (name), `step` (step, loss, ms), `checkpoint` (step),
        `resume` (step), `metric` (name, value), `verdict`, `error`. JSON has no NaN: pass None."""
        now = time.time()
        record = {"t": round(now, 3), "kind": kind, **self._stamp, **fields}
        self._events.write(json.dumps(record, allow_nan=False) + "\n")
        if kind in ("phase", "step") and (kind == "phase" or now - self._beaten >= 1):
            self._beaten = now
            name = fields.get("name", "train")
            self.replace("heartbeat.json", {"t": now, "phase": name, "step": fields.get("step")})

    def verdict(self, **fields: Any) -> None:
        """State where a non-finite number came from: `step, host, device, blame` (device, data or model), `text`."""
        self.replace("verdict.json", {"t": time.time(), **self._stamp, **fields})
        self.event("verdict", **fields)

    def replace(self, name: str, record: Mapping[str, Any]) -> None:
        """Put a file in place whole: a reader sees the old one or the new one, never a part."""
        path = self.folder / name
        temporary = path.with_suffix(".tmp")
        temporary.write_text(json.dumps(record, allow_nan=False), encoding="utf-8")
        temporary.replace(path)
