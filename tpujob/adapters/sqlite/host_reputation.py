"""Machines under suspicion in the SQLite store: steps of a transaction that the caller has begun."""

from __future__ import annotations

import json
from dataclasses import replace
from sqlite3 import Connection
from typing import Any

from tpujob.domain.failures import host_reputation
from tpujob.domain.model import Suspect

_COLUMNS = "physical, zone, score, updated_at, pinned, reasons"


def first_time(db: Connection, op_id: str) -> bool:
    """Whether this accusation was never made before; from now on it was."""
    return bool(db.execute("INSERT OR IGNORE INTO accusations VALUES (?)", (op_id,)).rowcount)


def accuse(db: Connection, physical: str, zone: str, weight: float, reason: str, at: float) -> None:
    query = f"SELECT {_COLUMNS} FROM suspects WHERE physical = ?"  # noqa: S608
    row = db.execute(query, (physical,)).fetchone()
    known = _suspect(row) if row else Suspect(physical, zone, 0.0, at)
    put(db, host_reputation.accused(replace(known, zone=zone or known.zone), weight, reason, at))


def all_of(db: Connection) -> list[Suspect]:
    """The highest score first, all as they have faded by one and the same time."""
    found = [_suspect(row) for row in db.execute(f"SELECT {_COLUMNS} FROM suspects")]  # noqa: S608
    return host_reputation.worst_first(found)


def put(db: Connection, suspect: Suspect) -> None:
    values = (
        suspect.physical,
        suspect.zone,
        suspect.score,
        suspect.updated_at,
        suspect.pinned,
        json.dumps(suspect.reasons),
    )
    db.execute("INSERT OR REPLACE INTO suspects VALUES (?, ?, ?, ?, ?, ?)", values)


def remove(db: Connection, physical: str) -> None:
    db.execute("DELETE FROM suspects WHERE physical = ?", (physical,))


def _suspect(row: tuple[Any, ...]) -> Suspect:
    physical, zone, score, updated_at, pinned, reasons = row
    return Suspect(physical, zone, score, updated_at, pinned, tuple(json.loads(reasons)))
