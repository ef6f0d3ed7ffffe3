"""A source that is written to while it is copied: its newest bytes are copied, or what was asked of it is void."""

from collections.abc import Callable

from tpujob.data.objects import Hash, ObjectFacts, Reader
from tpujob.errors import Conflict, NotFound

#: bytes of one object that are tried, each of which replaced the ones before
GENERATIONS = 3


def copy_newest(
    reader: Reader, bucket: str, facts: ObjectFacts, copy: Callable[[ObjectFacts], None]
) -> None:
    """`copy` what the facts say; where it raises NotFound, as these bytes are gone, what is there by now. Raises
    Conflict."""
    for _ in range(GENERATIONS):
        try:
            return copy(facts)
        except NotFound:
            newer = reader.look(bucket, facts.name)
            if newer is None:
                raise Conflict("it is not at the source any more") from None
            facts = newer
    raise Conflict("it is replaced again and again")


def hash_of(reader: Reader, bucket: str, facts: ObjectFacts) -> Hash | None:
    """What the source says of all of its bytes when it is asked for this one object. Raises NotFound when it was
    replaced."""
    now = reader.look(bucket, facts.name)
    if now is None or now.identity != facts.identity:
        raise NotFound(f"{facts.name} was replaced")
    return now.hash
