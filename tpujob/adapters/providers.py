"""Each slice through the adapter of its provider. A further way to get a slice is a package beside `cloud_tpu/`, a
provider of its own on its offers (`domain/capacity/offers.py`), and its entry in `wiring/`."""

from collections.abc import Collection, Mapping, Sequence

from tpujob.domain.model import Slice
from tpujob.domain.observations import SliceSeen, Unknown
from tpujob.errors import Transient
from tpujob.ports import Owned, Slices, SliceSurvey


class Providers:
    """The port Slices. A slice whose provider this backend lacks is Unknown; its request and its deletion are
    tried again, as after a rollback of the backend."""

    def __init__(self, adapters: Mapping[str, Slices]) -> None:
        self._adapters = adapters

    def look(self, slice: Slice, *, timeout: float) -> SliceSeen:
        adapter = self._adapters.get(slice.provider)
        if adapter is None:
            return Unknown(_unknown(slice))
        return adapter.look(slice, timeout=timeout)

    def survey(self, zones: Collection[str], *, timeout: float) -> SliceSurvey:
        """Each provider has an equal part of the time. A zone that one of them could not list is missing."""
        every = [
            adapter.survey(zones, timeout=timeout / len(self._adapters))
            for adapter in self._adapters.values()
        ]
        return SliceSurvey(
            seen={name: seen for one in every for name, seen in one.seen.items()},
            missed={zone: why for one in every for zone, why in one.missed.items()},
            calls=sum(one.calls for one in every),
        )

    def create(
        self, slice: Slice, *, job_id: str, public_key: str, timeout: float, user: str = ""
    ) -> None:
        self._of(slice).create(
            slice, job_id=job_id, public_key=public_key, timeout=timeout, user=user
        )

    def delete(self, slice: Slice, *, timeout: float, even_suspending: bool = False) -> None:
        self._of(slice).delete(slice, timeout=timeout, even_suspending=even_suspending)

    def list_all(self, zones: Sequence[str], *, timeout: float) -> list[Owned]:
        part = timeout / len(self._adapters)
        return [one for a in self._adapters.values() for one in a.list_all(zones, timeout=part)]

    def _of(self, slice: Slice) -> Slices:
        adapter = self._adapters.get(slice.provider)
        if adapter is None:
            raise Transient(_unknown(slice), hint="upgrade the backend")
        return adapter


def _unknown(slice: Slice) -> str:
    return f"slice {slice.name} is from the provider {slice.provider!r}, which this backend lacks"
