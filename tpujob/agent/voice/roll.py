"""What one host knows of the hosts of its slice: who speaks for them, what each said last, when that is to be written.

Pure: no threads, no sockets, no clock; every method is told the time, of a clock that never goes back.
"""

from __future__ import annotations

from typing import Any, Dict, List, NamedTuple, Optional, Set, Tuple

from tpujob.protocol import Phase, ReportDocument, StallRule
from tpujob.protocol.limits import LEFT_BEHIND, SAVING
from tpujob.protocol.slice_report import Word

GAP = 1.0  #: seconds, at least, between two writes: one object takes one a second
HURRY = 0.1  #: the same when a host has ended that is about to be taken away: there may be no other time
SLOWEST = 10.0  #: seconds, at most, between two tries to write while the storage refuses
SILENT = 30.0  #: seconds without a word of a host, after which that is told
SOON = 30.0  #: seconds between two writes for what is worth knowing, and decides nothing
#: seconds that a host without a connection waits for each host before it, as these try to speak first; and the most
TURN, LONGEST_TURN = 2.0, 10.0
#: seconds, beyond the time between two writes, in which the speaker has to write what it is told
PATIENCE = 60.0


class Heard(NamedTuple):
    """The newest word of a host."""

    said: ReportDocument
    at: float
    evidence: bytes


class Roll:
    """As one host keeps it."""

    def __init__(
        self,
        host: int,
        every: float,
        stall: Optional[StallRule],
        now: float,
        *,
        alone: bool = False,
    ) -> None:
        """`every`: seconds between two writes while nothing happens. `alone`: there is nobody to speak with."""
        self._host, self._every, self._stall = host, every, stall
        self._heard: Dict[int, Heard] = {}
        self._linked: Set[int] = set()
        self._since = now - (
            LONGEST_TURN if alone else 0.0
        )  #: when the host to tell was last another one
        self._kept, self._kept_at = (
            0,
            now,
        )  #: the newest own word that is in the bucket, and when that was heard
        self._told: Dict[
            int, Tuple[Any, ...]
        ] = {}  #: of each host, what mattered when it was written last
        self._hints: Dict[int, Tuple[Any, ...]] = {}
        self._written_at = float("-inf")
        self._again_at, self._delay = float("-inf"), GAP  #: after a write that failed

    # Who speaks ------------------------------------------------------------------------------------------------------

    def link(self, host: int, now: float) -> None:
        """From now on words go to and fro between that host and this one."""
        before = self.upward()
        self._linked.add(host)
        self._turned(before, now)

    def lost(self, host: int, now: float) -> None:
        before = self.upward()
        self._linked.discard(host)
        self._turned(before, now)

    def upward(self) -> Optional[int]:
        """The host that this one tells what it has to say; None: it reaches none before it."""
        return min((host for host in self._linked if host < self._host), default=None)

    def speaker(self, now: float) -> Optional[int]:
        """Who writes what this host has to say, itself when it speaks; None: nobody as yet. It speaks for itself when
        nobody before it can be reached, or the one who can does not write."""
        up = self.upward()
        if up is None:
            turn = min(LONGEST_TURN, TURN * self._host)
            return self._host if now - self._since >= turn else None
        waits = self._own() > self._kept
        late = now - max(self._since, self._kept_at) > self._every + PATIENCE
        return self._host if waits and late else up

    def _turned(self, before: Optional[int], now: float) -> None:
        if self.upward() != before:
            self._since = now

    # What was said ---------------------------------------------------------------------------------------------------

    def hear(self, host: int, said: ReportDocument, evidence: bytes, now: float) -> None:
        """A word of that host, or of this one; an older one than is known changes nothing."""
        known = self._heard.get(host)
        if known is None or said.get("seq", 0) > known.said.get("seq", 0):
            self._heard[host] = Heard(said, now, evidence)

    def words(self, now: float) -> List[Word]:
        """All that is known, to be written."""
        return [Word(k, h.said, now - h.at, h.evidence) for k, h in sorted(self._heard.items())]

    def _own(self) -> int:
        known = self._heard.get(self._host)
        return known.said.get("seq", 0) if known else 0

    # When it is written ----------------------------------------------------------------------------------------------

    def due(self, now: float) -> bool:
        """Whether this host is to write now."""
        if not self._heard or now < self._again_at or not self._writes(now):
            return False
        passed = now - self._written_at
        if passed < HURRY:
            return False
        matters = self._matters(now)
        if passed < GAP:
            return any(self._doomed(k) and matters[k] != self._told.get(k) for k in matters)
        if passed >= self._period() or matters != self._told:
            return True
        return passed >= SOON and self._worth_knowing() != self._hints

    def _writes(self, now: float) -> bool:
        """Also for hosts that tell this one, as they reach none before it, which this one may reach."""
        told = any(host > self._host for host in self._linked)
        return told or self.speaker(now) == self._host

    def written(self, words: List[Word], now: float) -> None:
        """This host has written these words, which are as old as `now`. Another one that should have is given no more
        time by that: while it does not write, this host goes on to."""
        self._written_at, self._delay = now, GAP
        self._told, self._hints = self._matters(now, words), self._worth_knowing()
        for word in words:
            if word.host == self._host:
                self._kept = max(self._kept, word.said.get("seq", 0))

    def failed(self, now: float) -> None:
        """They could not be written."""
        self._again_at, self._delay = now + self._delay, min(SLOWEST, 2 * self._delay)

    def kept(self, seq: int, now: float) -> None:
        """The host that this one tells has written the word of this one that has that number."""
        self._kept, self._kept_at = max(self._kept, seq), now

    def is_kept(self) -> bool:
        """Whether the newest word of this host is in the bucket."""
        return self._own() <= self._kept

    def _doomed(self, host: int) -> bool:
        said = self._heard[host].said
        return bool(said.get("notice")) and said.get("phase") == Phase.EXITED

    def _period(self) -> float:
        saving = any(
            h.said.get("notice") and h.said.get("phase") != Phase.EXITED
            for h in self._heard.values()
        )
        return min(self._every, SAVING) if saving else self._every

    def _matters(
        self, now: float, words: Optional[List[Word]] = None
    ) -> Dict[int, Tuple[Any, ...]]:
        """Of each host, what is written at once when it changes."""
        words = self.words(now) if words is None else words
        # who speaks in another's place does not know how that one ended
        ended = self._host > 0 or any(
            w.said.get("phase") == Phase.EXITED and w.said.get("exit_code") == 0 for w in words
        )
        return {w.host: self._state(w, ended) for w in words}

    def _state(self, word: Word, ended: bool) -> Tuple[Any, ...]:
        said, over = word.said, word.said.get("phase") == Phase.EXITED
        return (
            *(said.get(name) for name in ("phase", "exit_code", "notice", "error", "verdict")),
            said.get("saved_in"),
            not over and word.age > SILENT,
            not over and self._stalls(said),
            not over and ended and (said.get("idle") or 0.0) >= LEFT_BEHIND,
            word.evidence,
        )

    def _stalls(self, said: ReportDocument) -> bool:
        """Whether the program of a host is past its stall rule."""
        rule = self._stall
        if not rule or not rule["seconds"] or said.get("looks", 0) < rule["looks"]:
            return False
        compiles = said.get("program_phase") and said.get("step") is None
        return (said.get("idle") or 0.0) >= rule["first" if compiles else "seconds"]

    def _worth_knowing(self) -> Dict[int, Tuple[Any, ...]]:
        names = ("checkpoint", "resumed_from", "program_phase", "maintenance")
        return {k: tuple(h.said.get(n) for n in names) for k, h in self._heard.items()}
