"""What the hosts of a slice print little of goes to the bucket as one object, which the speaker writes for all.

The speaker asks all hosts at once for what waits. A host forgets its lines when it has heard that they are in the
bucket; if the speaker dies before, the next one gets them, and whoever reaches nobody writes for itself. So lines may
be written twice; their numbers tell.
"""

from __future__ import annotations

import base64
import threading
import time
import zlib
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Tuple, cast

from tpujob.agent.base import Record
from tpujob.agent.storage import Storage, StorageError
from tpujob.agent.voice.speaker import Voice
from tpujob.protocol import Plan, paths, segment
from tpujob.protocol.limits import LAST_SEGMENT, MAX_METADATA
from tpujob.protocol.segment import SegmentFacts

LARGEST = 1024 * 1024  #: bytes of lines of a host; a word has room for half of that
FULL = 4 * 1024 * 1024  #: bytes of an object
ROOM = 32 * 1024 * 1024  #: bytes, as they came, that wait with the speaker; more is not taken
GATHER = 2.0  #: seconds that the speaker waits for the others once it has got something
PATIENCE = 20.0  #: seconds in which what it got has to be in the bucket; then its host writes it
TURN = 12.0  #: seconds in which another host speaks up once the speaker has gone
LOOK = 0.5  #: seconds between two looks at what is due
SLOWEST = 5.0  #: seconds, at most, between two tries to write
PIECE, STORED, ASK = "piece", "stored", "ship"  #: kinds of words


class Piece(NamedTuple):
    """Lines of a host, as they came."""

    host: int
    facts: SegmentFacts
    data: str  #: compressed, in base64
    at: float  #: when they came; monotonic
    urgent: bool  #: the host is about to end

    def lines(self) -> Optional[bytes]:
        """None: they are not what was said of them."""
        try:
            unpack = zlib.decompressobj()
            data = unpack.decompress(base64.b64decode(self.data), LARGEST)
        except (ValueError, zlib.error):
            return None
        return data if data.count(b"\n") == self.facts.lines else None


class Pile:
    """One host's part in it. It ends with its process."""

    def __init__(self, plan: Plan, storage: Storage, voice: Voice, every: float) -> None:
        """`every`: seconds between two times that the speaker asks."""
        self._storage, self._voice, self._every = storage, voice, every
        self._host = plan["host"]
        self._where = (plan["workdir"], plan["attempt"], self._host)
        self._change = threading.Condition()
        self._pile: List[Piece] = []
        self._stored = 0  #: first line of what is heard to be in the bucket
        self._number = 0  #: of the newest object
        #: called when this host is to ship what waits
        self.asked: Callable[[], None] = lambda: None
        voice.on[PIECE] = self._hear
        voice.on[STORED] = lambda _, line: self._confirm(line)
        voice.on[ASK] = lambda _, __: self.asked()
        threading.Thread(target=self._run, name="pile", daemon=True).start()

    def ship(
        self, data: bytes, facts: SegmentFacts, urgent: bool, give_up: Callable[[], bool]
    ) -> bool:
        """Have these lines written; returns when they are in the bucket. False: that took too long."""
        said = facts._asdict()
        said["data"] = base64.b64encode(zlib.compress(data, 1)).decode()
        said["urgent"] = urgent
        for _ in range(2):
            to = self._speaker(give_up)
            if to is None:
                return False
            if to == self._host:
                self._hear(to, said)
            elif self._voice.links is None or not self._voice.links.send(to, PIECE, said):
                continue
            if self._wait(facts.line, to, give_up):
                return True
        return False

    def ask(self) -> None:
        """Have all hosts ship what they have, if this one speaks for them."""
        if self._voice.links is None or not self.speaks():
            return
        for host in self._voice.links.linked():
            self._voice.links.send(host, ASK, None)
        self.asked()

    def speaks(self) -> bool:
        return self._voice.speaker() == self._host

    def _speaker(self, give_up: Callable[[], bool]) -> Optional[int]:
        until = time.monotonic() + TURN
        with self._change:
            while True:
                found = self._voice.speaker()
                if found is not None or give_up() or time.monotonic() >= until:
                    return found
                self._change.wait(LOOK)

    def _wait(self, line: int, to: int, give_up: Callable[[], bool]) -> bool:
        until = time.monotonic() + PATIENCE
        with self._change:
            while self._stored != line:
                gone = give_up() or self._voice.speaker() != to
                if gone or time.monotonic() >= until:
                    return False
                self._change.wait(LOOK)
        return True

    # What others say, on the thread of the links ---------------------------------------------------------------------

    def _confirm(self, line: Any) -> None:
        with self._change:
            self._stored = line
            self._change.notify_all()

    def _hear(self, host: int, said: Any) -> None:
        """Of the same lines the newest word counts."""
        if not isinstance(said, dict):
            return
        word = cast(Record, said)
        facts, data, urgent = segment.told(word), word.get("data"), word.get("urgent") is True
        if facts is None or not isinstance(data, str):
            return
        piece = Piece(host, facts, data, time.monotonic(), urgent)
        if piece.lines() is None:
            return
        with self._change:
            self._pile = [p for p in self._pile if (p.host, p.facts.line) != (host, facts.line)]
            if sum(len(p.data) for p in self._pile) + len(data) <= ROOM:
                self._pile.append(piece)
                self._change.notify_all()

    # What the speaker writes -----------------------------------------------------------------------------------------

    def _run(self) -> None:
        asked_at, again_at, delay = time.monotonic(), float("-inf"), LOOK
        while True:
            with self._change:
                now = time.monotonic()
                # whoever has waited for longer has written itself
                self._pile = [p for p in self._pile if now - p.at < 2 * PATIENCE]
                pieces = self._pile[:] if now >= again_at and self._due(now) else []
                if not pieces:
                    left = asked_at + self._every - now
                    self._change.wait(LOOK if self._pile else max(LOOK, left))
            if now - asked_at >= self._every:
                asked_at = now
                self.ask()
            while pieces:
                taken, content, said = _packed(pieces)
                if not self._put(content, said):
                    again_at, delay = time.monotonic() + delay, min(SLOWEST, 2 * delay)
                    break
                delay = LOOK
                pieces = pieces[len(taken) :]
                self._tell(taken)

    def _due(self, now: float) -> bool:
        waits = self._pile
        full = sum(len(p.data) for p in waits) >= FULL
        return full or any(p.urgent or now - p.at >= GATHER for p in waits)

    def _put(self, content: bytes, said: Dict[str, str]) -> bool:
        """Whether it is in the bucket. What is there already is never written over: an agent that was started anew
        counts from 1."""
        while self._number < LAST_SEGMENT:
            path = paths.shared_log_path(*self._where, self._number + 1)
            try:
                self._storage.put(path, content, said, over="0")
            except StorageError as error:
                if error.status != 412:
                    return False
                self._number += 1
                continue
            self._number += 1
            return True
        return False

    def _tell(self, pieces: List[Piece]) -> None:
        """They are in the bucket."""
        with self._change:
            gone = {(p.host, p.facts.line) for p in pieces}
            self._pile = [p for p in self._pile if (p.host, p.facts.line) not in gone]
        for piece in pieces:
            if piece.host == self._host:
                self._confirm(piece.facts.line)
            elif self._voice.links is not None:
                self._voice.links.send(piece.host, STORED, piece.facts.line)


def _packed(pieces: List[Piece]) -> Tuple[List[Piece], bytes, Dict[str, str]]:
    """The first of them, at least one, as many as fit into an object; its content, and its metadata."""
    taken: List[Piece] = []
    rows: List[Tuple[int, SegmentFacts, int]] = []
    content, said = b"", {}
    for piece in pieces:
        lines = piece.lines() or b""
        more = segment.shared([*rows, (piece.host, piece.facts, len(lines))])
        if taken and (len(content) >= FULL or sum(map(len, more.values())) > MAX_METADATA):
            break
        taken.append(piece)
        rows.append((piece.host, piece.facts, len(lines)))
        content, said = content + lines, more
    return taken, content, said
