"""All providers of slices as one: each slice goes to its own, and a slow one delays no slice of another."""

import contextlib
import threading
from collections.abc import Callable, Generator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from tpujob.domain.model import Slice
from tpujob.domain.observations import SliceSeen, Unknown
from tpujob.errors import Refused, TpujobError, Transient
from tpujob.ports.hardware import Slices
from tpujob.ports.providers import Catalog

T = TypeVar("T")

#: calls of one provider at a time, beside others: half of the workers that tick jobs
AT_ONCE = 16


class Providers:
    """The slices of all providers. This backend may lack a slice's provider, as after a rollback. Then the slice is
    Unknown, and its creation and its deletion raise Transient. So it is while AT_ONCE calls wait for one of several
    providers. Thread-safe."""

    def __init__(self, slices: Mapping[str, Slices]) -> None:
        self.slices = slices
        several = slices if len(slices) > 1 else ()
        self._free = {name: threading.BoundedSemaphore(AT_ONCE) for name in several}

    def look(self, slice: Slice, *, timeout: float) -> SliceSeen:
        try:
            with self._of(slice) as slices:
                return slices.look(slice, timeout=timeout)
        except Transient as error:
            return Unknown(error.message)

    def create(
        self, slice: Slice, *, job_id: str, public_key: str, timeout: float, user: str = ""
    ) -> None:
        with self._of(slice) as slices:
            slices.create(slice, job_id=job_id, public_key=public_key, timeout=timeout, user=user)

    def delete(self, slice: Slice, *, timeout: float, even_suspending: bool = False) -> None:
        with self._of(slice) as slices:
            slices.delete(slice, timeout=timeout, even_suspending=even_suspending)

    @contextlib.contextmanager
    def _of(self, slice: Slice) -> Generator[Slices]:
        """Yield the slice's provider. Raises Transient."""
        name = slice.provider
        if name not in self.slices:
            text = f"slice {slice.name} is from the provider {name!r}, which this backend lacks"
            raise Transient(text, hint="upgrade the backend")
        free = self._free.get(name)
        if free and not free.acquire(blocking=False):
            raise Transient(f"slice {slice.name}: {AT_ONCE} calls wait for answers of {name!r}")
        try:
            yield self.slices[name]
        finally:
            if free:
                free.release()


def side_by_side(calls: Mapping[str, Callable[[], T]]) -> dict[str, T | TpujobError]:
    """Make all calls at the same time, and return their results or errors: as late as the slowest."""

    def outcome(call: Callable[[], T]) -> T | TpujobError:
        try:
            return call()
        except TpujobError as error:
            return error

    if len(calls) == 1:
        return {name: outcome(call) for name, call in calls.items()}
    with ThreadPoolExecutor(max(1, len(calls)), thread_name_prefix="provider") as pool:
        return dict(zip(calls, pool.map(outcome, calls.values()), strict=True))


def types_in(catalogs: Mapping[str, Catalog], zone: str) -> frozenset[str] | None:
    """Return the types that the zone offers, at any provider; None: one provider does not answer. Raises Refused when
    the zone is open at none."""
    answers = side_by_side({name: lambda c=c: c.types(zone) for name, c in catalogs.items()})
    types = [answer for answer in answers.values() if not isinstance(answer, Refused)]
    if not types:
        raise next(answer for answer in answers.values() if isinstance(answer, Refused))
    known = [answer for answer in types if isinstance(answer, frozenset)]
    return frozenset[str]().union(*known) if len(known) == len(types) else None
