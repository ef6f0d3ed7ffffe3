"""One object becomes another one within Cloud Storage, which copies the bytes itself."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tpujob.data.objects import NotCopied, ObjectFacts, Objects
from tpujob.data.places import Prefix
from tpujob.data.sync.stream_copy import copy_newest
from tpujob.data.sync.upload import Done
from tpujob.data.sync.workers import Pair
from tpujob.errors import Conflict, NotFound


@dataclass(frozen=True, slots=True)
class ServerCopier:
    """Threads share it."""

    objects: Objects
    source: Prefix
    target: Prefix
    moved: Callable[[int], None]

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
        copy_newest(self.objects, self.source.bucket, pair.source, partial(self._rewrite, pair))
        self.moved(pair.source.size)
        return "copied"

    def _rewrite(self, pair: Pair[ObjectFacts, ObjectFacts], facts: ObjectFacts) -> bool:
        """Raises NotFound when the source has another version by now."""
        bucket, name = self.target.bucket, self.target.prefix + pair.key
        generation = pair.target.generation if pair.target else 0
        token = ""
        while True:
            try:
                step = self.objects.rewrite(
                    self.source.bucket, facts, bucket, name, generation, token
                )
            except Conflict:
                there = self.objects.look(bucket, name)
                # our own try whose answer was lost, or another machine's copy of the same
                if there and there.crc32c is not None and there.crc32c == facts.crc32c:
                    return True
                now = self.objects.look(self.source.bucket, facts.name)
                if now and now.generation == facts.generation:
                    raise Conflict("something else was written there meanwhile") from None
                raise NotFound(f"{facts.name} was replaced") from None
            except NotFound:
                if not token:
                    raise
                token = ""  # it has ended before its time: begin again
                continue
            if isinstance(step, ObjectFacts):
                if (step.size, step.crc32c) != (facts.size, facts.crc32c):
                    raise Conflict(f"the storage has made other bytes of {facts.name}")
                return True
            token = step
