"""What the zones offer: as the Cloud TPU API lists it, or, while that fails, as tpujob's own table says.

For plans and advice only. A slice is requested without asking here: the answer to the request says more.
"""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from tpujob.adapters.calling import Deadline
from tpujob.adapters.cloud_tpu.calls import Api, Method
from tpujob.adapters.cloud_tpu.messages import id_of
from tpujob.domain.hardware import accelerators
from tpujob.errors import Transient

#: seconds for which a list is cached: zones get new types and runtimes every few weeks
FRESH = 3600.0
#: seconds that a person who submits a job waits for it
ANSWER = 10.0


@dataclass(frozen=True, slots=True)
class CatalogEntry:
    """What one zone offers. A listed type may still lack capacity or quota."""

    types: frozenset[str]  #: as the API spells them
    runtime_versions: frozenset[str]
    listed: bool  #: by the API just now; else by the table, which knows only the usual runtimes


class Catalog:
    """Threads may share it."""

    def __init__(self, api: Api, *, now: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._now = now
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, CatalogEntry]] = {}

    def known(self, zone: str, *, timeout: float) -> CatalogEntry:
        """What the zone offers, not older than FRESH. Raises Refused when the zone is not open to the project."""
        with self._lock:
            asked_at, offered = self._known.get(zone, (0.0, None))
        if offered and self._now() - asked_at < FRESH:
            return offered
        try:
            offered = self._listed(zone, Deadline(timeout))
        except Transient:
            return offered or _of_table(zone)
        with self._lock:
            self._known[zone] = (self._now(), offered)
        return offered

    def types(self, zone: str) -> frozenset[str] | None:
        """What the zone lists, not older than FRESH. None: it cannot be asked now. Raises Refused as `known` does."""
        found = self.known(zone, timeout=ANSWER)
        return found.types if found.listed else None

    def zones(self, *, timeout: float) -> tuple[str, ...]:
        """Every zone with Cloud TPUs that is open to the project; while the API fails, every zone of the table."""
        request, deadline = {"name": self._api.project()}, Deadline(timeout)
        try:
            pages = self._api.pages("list_locations", request, deadline, doing="listing the zones")
            return tuple(sorted(zone.location_id for page in pages for zone in page.locations))
        except Transient:
            return accelerators.all_zones()

    def _listed(self, zone: str, deadline: Deadline) -> CatalogEntry:
        types = self._names("list_accelerator_types", "accelerator_types", zone, deadline)
        versions = self._names("list_runtime_versions", "runtime_versions", zone, deadline)
        return CatalogEntry(types, versions, listed=True)

    def _names(self, method: Method, field: str, zone: str, deadline: Deadline) -> frozenset[str]:
        doing = f"asking what {zone} offers"
        request = {"parent": self._api.parent(zone)}
        pages = self._api.pages(method, request, deadline, doing=doing)
        return frozenset(id_of(one.name) for page in pages for one in getattr(page, field))


def _of_table(zone: str) -> CatalogEntry:
    types = frozenset(type for type in accelerators.ALL if zone in accelerators.zones(type))
    versions = frozenset(accelerators.find(type).runtime_version for type in types)
    return CatalogEntry(types, versions, listed=False)
