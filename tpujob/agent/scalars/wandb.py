"""Reads the history of an offline run of W&B, while it grows: a log in LevelDB's format of `Record` messages.

Sources: wandb/sdk/internal/datastore.py, wandb/proto/wandb_internal.proto.
"""

from __future__ import annotations

import json
import struct
import zlib
from typing import Dict, Iterator, List, Optional

from tpujob.agent.scalars.protobuf import fields, parts
from tpujob.agent.scalars.tail import MAX_RECORD, Scalars, Tail, Unusable

IDENT = struct.pack("<4sH", b":W&B", 0xBEE1)  #: before the version, a byte
VERSIONS = (0, 1)
BLOCK, HEAD = 32 * 1024, 7  #: bytes
FULL, FIRST, MIDDLE, LAST = 1, 2, 3, 4  #: of a record: whole, or one of its fragments

# fields of the messages
HISTORY = 2  # Record
ITEM, STEP = 1, 2  # HistoryRecord
NUM = 1  # HistoryStep
KEY, NESTED_KEY, VALUE_JSON = 1, 2, 16  # HistoryItem


class RunFile(Tail):
    """The file `run-ID.wandb` of a run."""

    _record: Optional[bytes] = b""  #: the fragments so far; None: too long, and left out

    def _parse(self, data: bytes) -> Iterator[Scalars]:
        at, start = 0, self.offset  #: of `data` in the file
        if start == 0:
            if len(data) < HEAD:
                return
            if data[:6] != IDENT or data[6] not in VERSIONS:
                raise Unusable("it is no run of W&B, or one of an unknown version")
            at = HEAD
            self.parsed(at)
        while True:
            left = BLOCK - (start + at) % BLOCK
            at += left if left < HEAD else 0  # the end of a block is filled with zeros
            if len(data) - at < HEAD:
                return
            check, size, kind = struct.unpack_from("<IHB", data, at)
            end = at + HEAD + size
            if end > len(data):
                return
            fragment = data[at + HEAD : end]
            if not FULL <= kind <= LAST or zlib.crc32(bytes([kind]) + fragment) != check:
                raise Unusable("a record does not have its checksum")
            at = end
            self.parsed(at)
            scalars = self._add(kind, fragment)
            if scalars:
                yield scalars

    def _add(self, kind: int, fragment: bytes) -> Optional[Scalars]:
        """Add a fragment; return the scalars of the record that it completes, if it has any."""
        begun = b"" if kind in (FULL, FIRST) else self._record
        fits = begun is not None and len(begun) + len(fragment) <= MAX_RECORD
        self._record = begun + fragment if begun is not None and fits else None
        if kind in (FIRST, MIDDLE) or self._record is None:
            return None
        return _scalars(self._record)


def _scalars(record: bytes) -> Optional[Scalars]:
    """Return the scalars of a record of the history; None: another record, or one without scalars."""
    for history in parts(record, HISTORY):
        values: Dict[str, float] = {}
        step = 0
        for number, value in fields(history):
            if number == STEP and isinstance(value, bytes):
                step = next((n for f, n in fields(value) if f == NUM and isinstance(n, int)), 0)
            elif number == ITEM and isinstance(value, bytes):
                _read_item(value, values)
        at = values.get("_timestamp", 0.0)
        step = int(values.get("_step", step))
        named = {name: value for name, value in values.items() if not name.startswith("_")}
        return Scalars(step, at, named) if named else None
    return None


def _read_item(item: bytes, into: Dict[str, float]) -> None:
    keys: List[str] = []
    text = b""
    for number, value in fields(item):
        if number in (KEY, NESTED_KEY) and isinstance(value, bytes):
            keys.append(value.decode("utf-8", "replace"))
        elif number == VALUE_JSON and isinstance(value, bytes):
            text = value
    scalar = json.loads(text) if 0 < len(text) < 64 else None
    if isinstance(scalar, (int, float)) and not isinstance(scalar, bool):
        into[".".join(filter(None, keys))] = float(scalar)
