"""Passes each call on to the adapter of the slice's provider.

Another provider needs a package beside `cloud_tpu/`, its name on its offers (`domain/capacity/offers.py`), and an entry
in `wiring/`.
"""

from collections.abc import Collection, Mapping, Sequence

from tpujob.domain.model import Slice
from tpujob.domain.observations import SliceSeen, Unknown
from tpujob.errors import Transient
from tpujob.ports import Owned, Slices, SliceSurvey


class Providers:
    """Implements `ports.Slices`. This backend may lack a slice's provider, as after a rollback. Then the slice is
    Unknown, and its creation and its deletion raise Transient."""

    def __init__(self, adapters: Mapping[str, Slices]) -> None:
        self._adapters = adapters

    def look(self, slice: Slice, *, timeout: float) -> SliceSeen:
        adapter = self._adapters.get(slice.provider)
        if adapter is None:
            return Unknown(_no_such_provider(slice))
        return adapter.look(slice, timeout=timeout)

    def survey(self, zones: Collection[str], *, timeout: float) -> SliceSurvey:
        """Survey all providers, each in an equal part of the time. A zone that one of them could not list is missed."""
        part = timeout / max(1, len(self._adapters))
        surveys = [adapter.survey(zones, timeout=part) for adapter in self._adapters.values()]
        return SliceSurvey(
            seen={name: seen for survey in surveys for name, seen in survey.seen.items()},
            missed={zone: why for survey in surveys for zone, why in survey.missed.items()},
            calls=sum(survey.calls for survey in surveys),
        )

    def create(
        self, slice: Slice, *, job_id: str, public_key: str, timeout: float, user: str = ""
    ) -> None:
        self._adapter_of(slice).create(
            slice, job_id=job_id, public_key=public_key, timeout=timeout, user=user
        )

    def delete(self, slice: Slice, *, timeout: float, even_suspending: bool = False) -> None:
        self._adapter_of(slice).delete(slice, timeout=timeout, even_suspending=even_suspending)

    def list_all(self, zones: Sequence[str], *, timeout: float) -> list[Owned]:
        part = timeout / max(1, len(self._adapters))
        lists = (a.list_all(zones, timeout=part) for a in self._adapters.values())
        return [owned for slices in lists for owned in slices]

    def _adapter_of(self, slice: Slice) -> Slices:
        adapter = self._adapters.get(slice.provider)
        if adapter is None:
            raise Transient(_no_such_provider(slice), hint="upgrade the backend")
        return adapter


def _no_such_provider(slice: Slice) -> str:
    return f"slice {slice.name} is from the provider {slice.provider!r}, which this backend lacks"
