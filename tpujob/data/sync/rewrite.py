"""One object becomes another one within Cloud Storage, which copies the bytes itself."""

from dataclasses import dataclass

from tpujob.data.objects import NotCopied, ObjectFacts, Objects
from tpujob.data.places import Prefix
from tpujob.data.sync.ledger import Ledger
from tpujob.data.sync.newest import GENERATIONS
from tpujob.data.sync.plan import Pair
from tpujob.data.sync.told import Told
from tpujob.data.sync.upload import Done
from tpujob.errors import Conflict, NotFound


@dataclass(frozen=True, slots=True)
class Rewriter:
    """Threads share it."""

    objects: Objects
    ledger: Ledger
    source: Prefix
    target: Prefix
    told: Told

    def same(self, pair: Pair[ObjectFacts, ObjectFacts]) -> bool:
        facts, there = pair.source, pair.target
        return (
            there is not None
            and facts.crc32c is not None
            and (there.size, there.crc32c) == (facts.size, facts.crc32c)
        )

    def copy(self, pair: Pair[ObjectFacts, ObjectFacts]) -> Done:
        """Afterwards there is an object with the same bytes. Raises Conflict when either was changed meanwhile,
        NotCopied, and what `Objects` raises."""
        if pair.source.crc32c is None:
            raise NotCopied("the storage does not say its checksum, so it cannot be verified")
        if self.same(pair):
            return "same"
        facts, name = pair.source, self.target.prefix + pair.key
        generation = pair.target.generation if pair.target else 0
        for _ in range(GENERATIONS):
            try:
                self._rewrite(facts, name, generation)
                self.told.sent(facts.size)
                return "copied"
            except (Conflict, NotFound) as error:
                newer = self.objects.look(self.source.bucket, facts.name)
                if newer is None:
                    raise Conflict("it is not at the source any more") from error
                if newer.generation == facts.generation:
                    raise Conflict("something else was written there meanwhile") from error
                facts = newer
        raise Conflict("it is replaced again and again")

    def _rewrite(self, facts: ObjectFacts, name: str, generation: int) -> None:
        """Raises Conflict, NotFound."""
        from_, to = self.source.bucket, self.target.bucket
        origin, target = f"gs://{from_}/{facts.name}#{facts.generation}", f"gs://{to}/{name}"
        token = self.ledger.token(origin, target, generation)
        while True:
            try:
                found = self.objects.rewrite(from_, facts, to, name, generation, token)
            except Conflict:
                self.ledger.forget_token(target)
                now = self.objects.look(to, name)
                # our own try whose answer was lost
                if now and now.crc32c is not None and now.crc32c == facts.crc32c:
                    return
                raise
            except NotFound:
                self.ledger.forget_token(target)
                if not token:
                    raise
                token = ""  # it has ended before its time: begin anew
                continue
            if isinstance(found, ObjectFacts):
                self.ledger.forget_token(target)
                if (found.size, found.crc32c) != (facts.size, facts.crc32c):
                    raise Conflict(f"the storage has made other bytes of {facts.name}")
                return
            token = found
            self.ledger.keep_token(origin, target, generation, token)
