"""What lists show of one attempt's log. What was known before is not listed again.

Objects of many hosts never change, and their names count up for each host that writes them, mostly host 0: once they
are known, a list begins behind the newest of host 0.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from threading import Lock
from typing import NamedTuple

from tpujob.lib.lru import LruDict
from tpujob.ports import Blob
from tpujob.protocol import paths
from tpujob.protocol.limits import LAST_SEGMENT
from tpujob.service.logs.bucket import shared, stored
from tpujob.service.logs.bucket.shared import Shared
from tpujob.service.logs.bucket.stored import Ordered, Rows, Segment

LISTS = 64  #: that are kept
#: objects that a page of a list shows: a list of fewer costs no less
PAGE = 1000
#: seconds after which objects of many hosts are listed from the first on, as a rule of the bucket may have removed some
WHOLE = 600.0
#: what a segment of a host's own takes, in pieces of an object of many
OWN = 14

#: prefix, the path behind which the list begins, and whether the job had ended
Key = tuple[str, str, bool]
#: lists what begins with the first and sorts behind the second
Ask = Callable[[str, str], Sequence[Blob]]


class Listed(NamedTuple):
    """What a list showed, and what was known before."""

    at: float
    own: Mapping[int, Sequence[Segment]]
    shared: Mapping[int, Rows]
    whole: bool  #: there was no more

    def of(self, host: int) -> Ordered:
        return stored.in_order(self.own.get(host, ()), self.shared.get(host))

    @property
    def hosts(self) -> list[int]:
        return [*{**self.own, **self.shared}]


class Lists:
    """Threads may share it."""

    def __init__(self, workdir: str, attempt: int) -> None:
        self._workdir, self._attempt = workdir, attempt
        self._folder = paths.attempt_folder(workdir, attempt) + "/"
        self._many = paths.shared_log_prefix(workdir, attempt)
        self._known: LruDict[Key, Listed] = LruDict(LISTS)
        self._table = Shared()
        self._whole_at = self._grown_at = float("-inf")
        self._lock = Lock()

    @property
    def weight(self) -> int:
        """In pieces of objects of many hosts."""
        lists = list(self._known.values())
        return self._table.pieces + sum(OWN * len(s) for one in lists for s in one.own.values())

    def known(self, key: Key) -> Listed | None:
        with self._lock:
            return self._known.get(key)

    def look(self, key: Key, ask: Ask, most: int) -> Listed:
        """`most`: objects that `ask` shows."""
        now, (prefix, after, _) = time.monotonic(), key
        if prefix == self._folder:
            found = self._of_all(ask, most, now)
        elif prefix == self._many:
            rows, objects = self._of_many(ask, most, now)
            found = Listed(now, {}, rows, self._all(objects, most))
        else:
            blobs = ask(prefix, after)
            found = Listed(now, self._own(blobs), {}, len(blobs) < most)
        with self._lock:
            self._known[key] = found
            while len(self._known) > 1 and self.weight > shared.MOST_PIECES:
                self._known.popitem(last=False)
        return found

    def _of_all(self, ask: Ask, most: int, now: float) -> Listed:
        """By one list; where more than a page of it is known, by one of what hosts have of their own and one of what
        is new of many."""
        if self._begin(most, now)[1] >= PAGE:
            blobs = ask(paths.hosts_prefix(self._workdir, self._attempt), "")
            rows, objects = self._of_many(ask, most, now)
            return Listed(now, self._own(blobs), rows, self._all(len(blobs) + objects, most))
        blobs = ask(self._folder, "")
        if len(blobs) >= most:
            return Listed(now, {}, {}, whole=False)
        rows = self._taken(stored.shared(self._workdir, self._attempt, blobs), now)
        return Listed(now, self._own(blobs), rows, self._all(len(blobs), most))

    def _of_many(self, ask: Ask, most: int, now: float) -> tuple[Mapping[int, Rows], int]:
        """And how many objects have them."""
        begin, _ = self._begin(most, now)
        if begin:
            rows = self._added(ask(self._many, begin))
            objects = len(self._table.generations)
            if rows is not None and objects < most:
                return rows, objects
        blobs = stored.shared(self._workdir, self._attempt, ask(self._many, ""))
        return self._taken(blobs, now), len(blobs)

    def _begin(self, most: int, now: float) -> tuple[str, int]:
        """Behind which path a list of what is new begins, and how many objects that leaves out."""
        with self._lock:
            known = self._table.generations
            if now - self._whole_at > WHOLE or len(known) >= most:
                return "", 0
            last = paths.shared_log_path(self._workdir, self._attempt, 0, LAST_SEGMENT)
            left_out = [path for path in known if path <= last]
            return max(left_out, default=""), len(left_out)

    def _added(self, blobs: Sequence[Blob]) -> Mapping[int, Rows] | None:
        """All that is known, with these; None: one is not as it was."""
        blobs = stored.shared(self._workdir, self._attempt, blobs)
        with self._lock:
            known = self._table.generations
            if any(known.get(blob.path, blob.generation) != blob.generation for blob in blobs):
                return None
            return self._add(blobs)

    def _taken(self, blobs: Sequence[Blob], began: float) -> Mapping[int, Rows]:
        """All that is known, with these: every one that there was when the list began."""
        listed = {blob.path: blob.generation for blob in blobs}
        with self._lock:
            known = self._table.generations
            grown = self._grown_at >= began  # by what the list could not show
            if any(listed.get(p, g if grown else -1) != g for p, g in known.items()):
                self._table = Shared()
            self._whole_at = began
            return self._add(blobs)

    def _add(self, blobs: Sequence[Blob]) -> Mapping[int, Rows]:
        before = len(self._table.generations)
        self._table.add(blobs)
        if len(self._table.generations) > before:
            self._grown_at = time.monotonic()
        return stored.rows(self._table)

    def _own(self, blobs: Sequence[Blob]) -> dict[int, list[Segment]]:
        return stored.own(self._workdir, self._attempt, blobs)

    def _all(self, objects: int, most: int) -> bool:
        return objects < most and not self._table.full
