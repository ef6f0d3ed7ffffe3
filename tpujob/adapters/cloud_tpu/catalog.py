"""The accelerator types that each zone offers, as the Cloud TPU API lists them.

For plans and advice only: no request for a slice consults the catalog.
"""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import threading
import time
from collections.abc import Callable

from tpujob.adapters.cloud_tpu.calls import Api
from tpujob.adapters.cloud_tpu.messages import id_of
from tpujob.errors import Transient
from tpujob.lib.tries import Deadline

#: seconds for which a list is cached; zones get new types every few weeks
LIST_TTL = 3600.0
#: seconds that a person who submits a job waits for a list
ANSWER = 10.0


class CloudTpuCatalog:
    """Implements `ports.Catalog`: a cache of the lists of accelerator types. Thread-safe."""

    def __init__(self, api: Api, *, now: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._now = now
        self._lock = threading.Lock()
        #: by zone: when it was listed, and its types
        self._listed: dict[str, tuple[float, frozenset[str]]] = {}

    def types(self, zone: str, *, timeout: float = ANSWER) -> frozenset[str] | None:
        """Return the types that the zone lists; None when it has never answered. The list is at most LIST_TTL old,
        unless the API does not answer. A listed type may lack capacity or quota. Raises Refused when the zone is not
        open to the project."""
        with self._lock:
            listed_at, offered = self._listed.get(zone, (0.0, None))
        if offered is not None and self._now() - listed_at < LIST_TTL:
            return offered
        request = {"parent": self._api.parent(zone)}
        doing = f"listing the types of {zone}"
        try:
            pages = self._api.pages("list_accelerator_types", request, Deadline(timeout), doing)
            offered = frozenset(id_of(t.name) for page in pages for t in page.accelerator_types)
        except Transient:
            return offered
        with self._lock:
            self._listed[zone] = (self._now(), offered)
        return offered
