"""Lists of queued resources and nodes in the Cloud TPU API: of one zone, or of many at once.

The location `-` stands for all zones, and takes two calls instead of two for each zone. It is not documented; both
methods accept it in `gcloud --zone=-`, and public code lists nodes with it. When it is refused, or its answer calls
zones unreachable, the zones are listed one by one. An incomplete list is an error of its zone, never an empty list.

The longest page is not documented. PAGE is requested, and a page of any length is accepted. Similar services
(Memorystore, Filestore) document a thousand; public code requests 500 of this one.
"""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from tpujob.adapters.cloud_tpu.calls import Api, Method
from tpujob.adapters.cloud_tpu.messages import id_of, raw
from tpujob.errors import Refused, TpujobError, Transient
from tpujob.lib.tries import Deadline

_log = logging.getLogger(__name__)

ALL_ZONES = "-"
#: resources on a page, as requested
PAGE = 1000
#: zones that are listed in parallel, one call each: there are 40, and a list takes some tenths of a second
AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class ZoneList:
    """All resources of one zone, as messages of the API without the library's wrapper."""

    queued: list[Any] = field(default_factory=list[Any])
    nodes: list[Any] = field(default_factory=list[Any])


class Lists:
    """Lists the resources of zones. Thread-safe."""

    #: seconds for which threads share a zone's list: many may check at once whether a slice is gone
    shared_for = 1.0

    def __init__(self, api: Api) -> None:
        self._api = api
        self._all_refused = False  #: this API refuses the location `-`
        self.calls = 0  #: list calls so far
        self._shared: dict[str, tuple[float, ZoneList]] = {}  #: by zone, with the time of its start
        self._locks = defaultdict[str, threading.Lock](threading.Lock)

    def zone(self, zone: str, deadline: Deadline) -> ZoneList:
        """Return a zone's resources. Raises Transient, also for an incomplete list; ZoneClosed, Refused."""
        resources, unreachable = self._pages(zone, deadline)
        if unreachable:
            raise Transient(f"listing {zone}: the list is not complete")
        return resources

    def shared(self, zone: str, deadline: Deadline) -> ZoneList:
        """Return a zone's resources, perhaps from a list that another thread began within `shared_for` seconds."""
        lock = self._locks[zone]
        if not lock.acquire(timeout=deadline.left(doing=f"listing {zone}")):
            raise Transient(f"listing {zone}: no answer in time")
        try:
            listed_at, resources = self._shared.get(zone, (0.0, None))
            now = time.monotonic()
            if resources is None or now - listed_at >= self.shared_for:
                resources = self.zone(zone, deadline)
                self._shared[zone] = now, resources
            return resources
        finally:
            lock.release()

    def forget(self, zone: str) -> None:
        """Drop the shared list of a zone, because a resource was just requested there."""
        self._shared.pop(zone, None)

    def zones(
        self, zones: Sequence[str], deadline: Deadline
    ) -> Mapping[str, ZoneList | TpujobError]:
        """Return each zone's list, or why it could not be listed: Transient, ZoneClosed or Refused."""
        from_all = self._list_all_zones(zones, deadline) if len(zones) > 1 else {}
        results = from_all or {}
        rest = [zone for zone in zones if zone not in results]
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="list") as pool:
            one_by_one = pool.map(self._zone_or_error, rest, repeat(deadline))
            results |= dict(zip(rest, one_by_one, strict=True))
        if from_all is None and any(isinstance(result, ZoneList) for result in results.values()):
            self._all_refused = True  # the location `-` is refused, not this account
        return results

    def _zone_or_error(self, zone: str, deadline: Deadline) -> ZoneList | TpujobError:
        try:
            return self.zone(zone, deadline)
        except TpujobError as error:
            return error

    def _list_all_zones(
        self, zones: Sequence[str], deadline: Deadline
    ) -> dict[str, ZoneList | TpujobError] | None:
        """Return the lists of the zones that the location `-` reaches; None when that location is refused."""
        if self._all_refused:
            return None
        try:
            everything, unreachable = self._pages(ALL_ZONES, deadline)
        except Refused as refused:
            _log.info("%s; listing zone by zone", refused.message)
            return None
        except TpujobError as error:
            return dict.fromkeys(zones, error)
        lists = {zone: ZoneList() for zone in zones if zone not in unreachable}
        for queued in everything.queued:
            if zone_list := lists.get(zone_of(queued.name)):
                zone_list.queued.append(queued)
        for node in everything.nodes:
            if zone_list := lists.get(zone_of(node.name)):
                zone_list.nodes.append(node)
        return {**lists}

    def _pages(self, zone: str, deadline: Deadline) -> tuple[ZoneList, set[str]]:
        """Return all resources of a zone or of ALL_ZONES, and the zones that could not be reached. Both lists of
        ALL_ZONES are read at once, as each may have many pages. For one zone the second list waits for the first, so
        that a closed zone costs one call."""
        request = {"parent": self._api.parent(zone), "page_size": PAGE}
        doing = "listing all zones" if zone == ALL_ZONES else f"listing {zone}"

        def listed(method: Method) -> list[Any]:
            pages = self._api.pages(method, request, deadline, doing)
            return [raw(next(page.pages)) for page in pages]

        methods: list[Method] = ["list_queued_resources", "list_nodes"]
        if zone == ALL_ZONES:
            with ThreadPoolExecutor(len(methods), thread_name_prefix="pages") as pool:
                queued, nodes = pool.map(listed, methods)
        else:
            queued, nodes = map(listed, methods)
        self.calls += len(queued) + len(nodes)
        resources = ZoneList(
            [resource for page in queued for resource in page.queued_resources],
            [node for page in nodes for node in page.nodes],
        )
        return resources, {id_of(zone) for page in (*queued, *nodes) for zone in page.unreachable}


def zone_of(name: str) -> str:
    """Return the zone in a resource's name, `projects/P/locations/Z/nodes/N`."""
    return name.split("/")[3]
