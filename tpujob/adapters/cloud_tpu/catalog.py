"""Which types the zones offer, as the Cloud TPU API lists them.

For plans and advice only. A slice is requested without asking here: the answer to the request says more.
"""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import threading
import time
from collections.abc import Callable

from tpujob.adapters.calling import Deadline
from tpujob.adapters.cloud_tpu.calls import Api
from tpujob.adapters.cloud_tpu.messages import id_of
from tpujob.errors import Transient

#: seconds for which a list is cached: zones get new types every few weeks
FRESH = 3600.0
#: seconds that a person who submits a job waits for it
ANSWER = 10.0


class Catalog:
    """Threads may share it."""

    def __init__(self, api: Api, *, now: Callable[[], float] = time.monotonic) -> None:
        self._api = api
        self._now = now
        self._lock = threading.Lock()
        self._known: dict[str, tuple[float, frozenset[str]]] = {}

    def types(self, zone: str, *, timeout: float = ANSWER) -> frozenset[str] | None:
        """Return the types that the zone lists, not older than FRESH unless it does not answer; a listed type may still
        lack capacity or quota. None: the zone has never answered. Raises Refused when it is not open to the project."""
        with self._lock:
            asked_at, offered = self._known.get(zone, (0.0, None))
        if offered is not None and self._now() - asked_at < FRESH:
            return offered
        request = {"parent": self._api.parent(zone)}
        doing = f"listing the types of {zone}"
        try:
            pages = self._api.pages("list_accelerator_types", request, Deadline(timeout), doing)
            offered = frozenset(id_of(one.name) for page in pages for one in page.accelerator_types)
        except Transient:
            return offered
        with self._lock:
            self._known[zone] = (self._now(), offered)
        return offered
