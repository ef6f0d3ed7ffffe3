"""What of a page changes, and how two states of it differ. Pure.

A snapshot is immutable and shared by all viewers of a view; a viewer's state is the one snapshot that was sent last.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

#: the words within `<time>` follow the clock, and the page keeps them fresh by itself: they are no change
_TIME = re.compile(r"(<time\b[^>]*>)[^<]*")


@dataclass(frozen=True, slots=True)
class Fragments:
    """HTML by the id of its outermost element. A page has the same parts each time; rows come and go."""

    parts: Mapping[str, str] = field(default_factory=dict[str, str])
    rows: Mapping[str, str] = field(default_factory=dict[str, str])
    order: Sequence[str] = ()  #: the ids of all rows, from the top
    still: bool = False  #: nothing of it changes but with the store


class Kept:
    """The rows of one view as they were made last: only those that differ are made again. Of one thread at a time."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[bytes, str]] = {}
        self._now: dict[str, tuple[bytes, str]] = {}

    def row(self, name: str, of: object, make: Callable[[], str]) -> str:
        """The HTML of the row with that id; `of`: all that it depends on beside the clock, as JSON could have it."""
        mark = _digest(repr(of))
        known = self._last.get(name)
        made = known if known and known[0] == mark else (mark, make())
        self._now[name] = made
        return made[1]

    def turn(self) -> None:
        """Everything was asked for; what was not is forgotten."""
        self._last, self._now = self._now, {}


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A state of a view, under an event id that no other state has."""

    id: str  #: epoch of the process, revision of the store, digest of the content
    shown: Fragments
    marks: Mapping[str, bytes]  #: a digest of each part and row

    @property
    def digest(self) -> str:
        return digest_in(self.id)


def digest_in(event_id: str) -> str:
    """Two event ids with the same digest stand for the same content, whichever process gave them out."""
    return event_id.rpartition("-")[2]


def snapshot(shown: Fragments, epoch: str, revision: int, before: Snapshot | None) -> Snapshot:
    """The state with that content; `before` itself when its content is the same."""
    marks = _marks(shown, before)
    digest = _whole(shown, marks)
    if before and before.digest == digest:
        return before
    return Snapshot(f"{epoch}-{revision}-{digest}", shown, marks)


def as_loaded(shown: Fragments) -> Snapshot:
    """The state that a page shows when it is loaded, without its HTML: enough to tell what differs from it."""
    marks = _marks(shown, None)
    return Snapshot(_whole(shown, marks), Fragments(order=shown.order), marks)


def everything(now: Snapshot) -> dict[str, Any]:
    """As sent to somebody of whom nothing is known."""
    parts, rows = dict(now.shown.parts), dict(now.shown.rows)
    return {"id": now.id, "all": True, "parts": parts, "rows": rows, "order": [*now.shown.order]}


def difference(before: Snapshot, now: Snapshot) -> dict[str, Any]:
    """What makes one state out of the other. `order` is there when rows came, went or moved."""

    def changed(of: Mapping[str, str]) -> dict[str, str]:
        return {k: html for k, html in of.items() if before.marks.get(k) != now.marks[k]}

    found: dict[str, Any] = {"parts": changed(now.shown.parts), "rows": changed(now.shown.rows)}
    if [*before.shown.order] != [*now.shown.order]:
        found["order"] = [*now.shown.order]
    return found


def event(kind: str, data: Mapping[str, Any], event_id: str = "") -> bytes:
    """One server-sent event."""
    number = f"id: {event_id}\n" if event_id else ""
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return f"{number}event: {kind}\ndata: {text}\n\n".encode()


def _marks(shown: Fragments, before: Snapshot | None) -> dict[str, bytes]:
    both = (*shown.parts.items(), *shown.rows.items())
    return {name: _mark(name, html, before) for name, html in both}


def _whole(shown: Fragments, marks: Mapping[str, bytes]) -> str:
    whole = blake2b(digest_size=12)
    for name in (*sorted(shown.parts), *shown.order):
        whole.update(name.encode() + b"\0" + marks[name])
    return whole.hexdigest()


def _mark(name: str, html: str, before: Snapshot | None) -> bytes:
    if before and (before.shown.rows.get(name) is html or before.shown.parts.get(name) is html):
        return before.marks[name]
    return _digest(_TIME.sub(r"\1", html))


def _digest(text: str) -> bytes:
    return blake2b(text.encode(), digest_size=12).digest()
