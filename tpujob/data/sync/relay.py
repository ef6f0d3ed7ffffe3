"""One object outside Cloud Storage becomes one in it: through the memory of this process, over no disk.

A large one goes in a session, as in `upload.py`. What must survive a kill is in the ledger: the session, and the CRC32C
of what it has.
"""

import time
from dataclasses import dataclass

from tpujob.data.checksum import extend
from tpujob.data.objects import (
    Hash,
    NotCopied,
    ObjectFacts,
    Objects,
    Piece,
    Reader,
    WrongBytes,
)
from tpujob.data.places import Outside, Prefix
from tpujob.data.sync.ledger import Ledger, RelayState
from tpujob.data.sync.newest import copy_newest, hash_of
from tpujob.data.sync.plan import Pair
from tpujob.data.sync.told import Told
from tpujob.data.sync.upload import SMALL, Done
from tpujob.data.sync.verify import Hasher, hasher, matches, said_of
from tpujob.errors import Conflict, NotFound, Transient

#: bytes of a piece, which is held in memory; a multiple of 256 KiB (documented)
PIECE = 8 << 20
_TRIES = 8
_SESSIONS = 3  #: that are begun for one object in one sync


class _Wrong(Exception):
    """The bytes do not have the hash that the source says. `crc32c`: what they have."""

    def __init__(self, crc32c: int) -> None:
        super().__init__()
        self.crc32c = crc32c


class _Ended(Exception):
    """The session is no more: before its time, or as its bytes arrived changed."""


@dataclass(frozen=True, slots=True)
class Relay:
    """Threads share it."""

    reader: Reader
    source: Outside
    objects: Objects
    ledger: Ledger
    target: Prefix
    told: Told

    def same(self, pair: Pair[ObjectFacts, ObjectFacts]) -> bool:
        """Whether there is nothing to copy. Costs no request: lists have all that is compared."""
        facts, there = pair.source, pair.target
        if there is None or there.size != facts.size:
            return False
        if facts.crc32c is not None and there.crc32c is not None:
            return facts.crc32c == there.crc32c
        return bool(facts.identity) and facts.identity == there.source

    def copy(self, pair: Pair[ObjectFacts, ObjectFacts]) -> Done:
        """Afterwards the object has the bytes of the source. Raises Conflict when somebody else wrote it meanwhile, and
        what `Reader` and `Objects` raise."""
        if self.same(pair):
            return "same"
        name = self.target.prefix + pair.key
        generation = pair.target.generation if pair.target else 0

        def copy(facts: ObjectFacts) -> None:
            how = self._small if facts.size <= SMALL else self._large
            how(facts, name, generation)

        copy_newest(self.reader, self.source.bucket, pair.source, copy)
        return "copied"

    def _small(self, facts: ObjectFacts, name: str, generation: int) -> None:
        data = self._read(facts)
        crc32c = extend(0, data)
        try:
            self.objects.put(self.target.bucket, name, data, crc32c, generation, facts.identity)
        except Conflict:
            self._check_ours(name, facts, crc32c)
        self.told.sent(len(data))

    def _read(self, facts: ObjectFacts) -> bytes:
        """All of its bytes, verified as far as the source can tell."""
        wrong = -1, 0
        for failures in range(1, _TRIES + 1):
            taken = bytearray()
            try:
                told = self.reader.get(self.source.bucket, facts, 0, taken.extend)
                said, data = said_of(facts) or told, bytes(taken)
                had = len(data), extend(0, data)
                # what only may be a hash is none, when two reads agree with each other and not with it
                settled = said is not None and not said.certain and wrong == had
                if len(data) == facts.size and (settled or matches(said, data)):
                    if settled or (said is None and data):
                        self.told.unverified()
                    return data
                if wrong == had or failures == _TRIES:
                    raise WrongBytes(len(data), facts)
                wrong = had
                raise Transient(f"the bytes of {facts.name} are wrong")
            except Transient:
                if failures == _TRIES:
                    raise
                time.sleep(min(8.0, 0.05 * 2**failures))
        raise AssertionError

    def _large(self, facts: ObjectFacts, name: str, generation: int) -> None:
        said = said_of(facts)
        if said is None:
            said = hash_of(self.reader, self.source.bucket, facts)
        wrong: int | None = None
        for _ in range(_SESSIONS):
            stream = _Stream(self, facts, name, generation, said, wrong)
            try:
                stream.run()
                if said is None or stream.outvoted:
                    self.told.unverified()
                return
            except _Wrong as error:
                if error.crc32c == wrong:
                    stream.drop()
                    raise WrongBytes(facts.size, facts) from None
                wrong = error.crc32c
            except _Ended:
                pass
            except Conflict:
                stream.drop()
                self._check_ours(name, facts, stream.crc32c)
                return
            except (NotFound, NotCopied):
                stream.drop()
                raise
            stream.drop()
        if wrong is not None:
            raise WrongBytes(facts.size, facts)
        raise Transient(f"the upload of {facts.name} ended {_SESSIONS} times before its last byte")

    def _check_ours(self, name: str, facts: ObjectFacts, crc32c: int) -> None:
        """After a Conflict: it may be our own try whose answer was lost, or another machine's copy of the same. Raises
        Conflict."""
        found = self.objects.look(self.target.bucket, name)
        if not found or found.size != facts.size:
            raise Conflict("something else was written there meanwhile")
        if found.crc32c != crc32c and not (facts.identity and found.source == facts.identity):
            raise Conflict("something else was written there meanwhile")


class _Stream:
    """One object on its way. `crc32c` is of the first `at` bytes of the source; the session has `offset` of them, and
    those between wait in memory."""

    def __init__(
        self,
        relay: Relay,
        facts: ObjectFacts,
        name: str,
        generation: int,
        said: Hash | None,
        wrong: int | None,
    ) -> None:
        """`wrong`: the CRC32C of an earlier try, whose bytes had not the hash that was said."""
        self._relay, self._facts, self._name = relay, facts, name
        self._said, self._wrong, self._generation = said, wrong, generation
        self._target = f"gs://{relay.target.bucket}/{name}"
        self._origin = f"{relay.source} {facts.name} {facts.identity}"
        self._waiting = bytearray()
        self.outvoted = False  #: what was said is no hash of the bytes, which two tries agree on
        self._own: Hasher | None = None  #: of what was said, unless it was begun in another process
        self._session, self._offset, self._at, self.crc32c = "", 0, 0, 0

    def run(self) -> None:
        """Afterwards the object is there, and verified. Raises _Wrong, _Ended, Conflict, NotFound for the source."""
        if self._open():
            return
        failures = 0
        while self._at < self._facts.size:
            before = self._at
            try:
                self._relay.reader.get(self._relay.source.bucket, self._facts, self._at, self._take)
                if self._at == before:  # two answers ended here
                    raise WrongBytes(self._at, self._facts)
                if self._at < self._facts.size:
                    raise Transient(f"{self._facts.name} ended early")
            except Transient:
                failures = 1 if self._at > before else failures + 1
                if failures >= _TRIES:
                    raise
                time.sleep(min(8.0, 0.05 * 2**failures))
        self._verify()
        self._send(last=True)
        self._relay.ledger.forget_relay(self._target)

    def drop(self) -> None:
        """Afterwards there is no session, and nothing of it in the ledger."""
        if self._session:
            self._relay.objects.drop(self._session)
        self._relay.ledger.forget_relay(self._target)

    def _open(self) -> bool:
        """Continue a session, or begin one. True: it was complete."""
        relay = self._relay
        state, fits = relay.ledger.relay(self._origin, self._target, self._generation)
        if state and fits and self._can_continue(state):
            try:
                found = relay.objects.offset(state.session, self._facts.size)
                if not isinstance(found, int):
                    relay.ledger.forget_relay(self._target)
                    return True
                if found >= state.offset:
                    self._session, self._offset = state.session, found
                    self._at, self.crc32c = state.offset, state.crc32c
                    relay.told.had(found)
                    return False
            except NotFound:
                pass
        if state:
            relay.objects.drop(state.session)
        self._begin()
        return False

    def _can_continue(self, state: RelayState) -> bool:
        """Of other hashes than these no part outlives a process; an MD5 the storage compares itself."""
        return not state.offset or self._said is None or self._said.kind in ("crc32c", "md5")

    def _begin(self) -> None:
        relay, said = self._relay, self._said
        md5 = said.value if said and said.kind == "md5" and self._wrong is None else None
        self._session = relay.objects.begin(
            relay.target.bucket,
            self._name,
            self._facts.size,
            self._generation,
            self._facts.identity,
            md5,
        )
        self._own = hasher(said.kind) if said else None
        self._keep()

    def _keep(self) -> None:
        state = RelayState(self._session, self._at, self.crc32c)
        self._relay.ledger.keep_relay(self._origin, self._target, self._generation, state)

    def _take(self, data: bytes) -> None:
        """Bytes of the source from `at`."""
        rest = memoryview(data)
        while rest:
            if len(self._waiting) >= PIECE:
                self._send(last=False)
            again = self._offset - self._at  # the session has them, and their checksum was lost
            chunk = bytes(rest[: again if again > 0 else PIECE - len(self._waiting)])
            self.crc32c = extend(self.crc32c, chunk)
            if self._own:
                self._own.update(chunk)
            self._at += len(chunk)
            if again <= 0:
                self._waiting += chunk
            rest = rest[len(chunk) :]

    def _verify(self) -> None:
        """Before the last piece gives the object its name."""
        said = self._said
        if said and said.kind == "crc32c":
            right = self.crc32c.to_bytes(4, "big") == said.value
        else:
            right = said is None or self._own is None or self._own.digest() == said.value
        self.outvoted = bool(said and not said.certain and self._wrong == self.crc32c)
        if not right and not self.outvoted:
            raise _Wrong(self.crc32c)

    def _send(self, *, last: bool) -> None:
        """Afterwards the session has what waited; if it is the last piece, the object is there."""
        relay, failures = self._relay, 0
        end = self._offset + len(self._waiting)
        while self._waiting or last:
            piece = Piece(self._offset, end, self._facts.size)
            crc32c = self.crc32c if last else None
            try:
                found = relay.objects.send(self._session, [bytes(self._waiting)], piece, crc32c)
            except NotFound as error:
                raise _Ended from error
            except Transient:
                failures += 1
                if failures >= _TRIES:
                    raise
                time.sleep(min(8.0, 0.1 * 2**failures))
                found = self._ask()
            if isinstance(found, ObjectFacts):
                if (found.size, found.crc32c) != (self._facts.size, self.crc32c):
                    text = f"the storage has other bytes than were sent for {self._name}"
                    raise Conflict(text)
                relay.told.sent(len(self._waiting))
                return
            if not self._offset <= found <= end:
                raise _Ended
            relay.told.sent(found - self._offset)
            del self._waiting[: found - self._offset]
            self._offset = found
        self._keep()

    def _ask(self) -> int | ObjectFacts:
        try:
            return self._relay.objects.offset(self._session, self._facts.size)
        except NotFound as error:
            raise _Ended from error
