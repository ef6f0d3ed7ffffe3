"""What the Cloud TPU API lists: the queued resources and the nodes of one zone, or of many at once.

All zones (`locations/-`) take two calls and not two a zone. That both lists have it is seen in `gcloud --zone=-` and,
of nodes, in public code; it is not documented. So a refusal of it, and each zone that its answer calls unreachable,
lead to the zones' own lists. A list that is not complete is an error of its zone, never an empty one.

How long a page may be is documented nowhere. So PAGE is asked for, and whatever comes is taken: services that are built
alike (Memorystore, Filestore) document a thousand, public code asks this one for 500.
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

from tpujob.adapters.calling import Deadline
from tpujob.adapters.cloud_tpu.calls import Api, Method
from tpujob.adapters.cloud_tpu.messages import id_of, raw
from tpujob.errors import Refused, TpujobError, Transient

_log = logging.getLogger(__name__)

ALL_ZONES = "-"
#: what is asked for: resources on a page
PAGE = 1000
#: zones that are listed at once, one by one: there are 40, and a list takes some tenths of a second
AT_ONCE = 8
#: seconds for which a zone's list answers whether a slice is gone: many threads may ask at once
SHARED = 1.0


@dataclass(frozen=True, slots=True)
class ZoneList:
    """All resources of one zone, as messages of the API without the library's wrapper."""

    queued: list[Any] = field(default_factory=list[Any])
    nodes: list[Any] = field(default_factory=list[Any])


class Lists:
    """Threads may share it."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._all_refused = False  #: this API has no list of all zones
        self.calls = 0  #: so far
        self._shared: dict[str, tuple[float, ZoneList]] = {}  #: by zone, and when it was begun
        self._locks = defaultdict[str, threading.Lock](threading.Lock)

    def zone(self, zone: str, deadline: Deadline) -> ZoneList:
        """Return a zone's resources. Raises Transient, also for a list that is not complete; ZoneClosed, Refused."""
        found, missed = self._pages(zone, deadline)
        if missed:
            raise Transient(f"listing {zone}: the list is not complete")
        return found

    def shared(self, zone: str, deadline: Deadline) -> ZoneList:
        """As `zone`, perhaps begun a moment ago for another thread."""
        lock = self._locks[zone]
        if not lock.acquire(timeout=deadline.left(doing=f"listing {zone}")):
            raise Transient(f"listing {zone}: no answer in time")
        try:
            at, known = self._shared.get(zone, (0.0, None))
            began = time.monotonic()
            if known is None or began - at >= SHARED:
                known = self.zone(zone, deadline)
                self._shared[zone] = began, known
            return known
        finally:
            lock.release()

    def forget(self, zone: str) -> None:
        """Drop older lists of a zone in which a resource was just requested."""
        self._shared.pop(zone, None)

    def zones(
        self, zones: Sequence[str], deadline: Deadline
    ) -> Mapping[str, ZoneList | TpujobError]:
        """Return each zone's list, or why it could not be listed: Transient, ZoneClosed or Refused."""
        everywhere = self._everywhere(zones, deadline) if len(zones) > 1 else {}
        found = everywhere or {}
        rest = [zone for zone in zones if zone not in found]
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="list") as pool:
            own = pool.map(self._or_why_not, rest, repeat(deadline))
            found |= dict(zip(rest, own, strict=True))
        if everywhere is None and any(isinstance(one, ZoneList) for one in found.values()):
            self._all_refused = True  # it is the list of all that is refused, not this account
        return found

    def _or_why_not(self, zone: str, deadline: Deadline) -> ZoneList | TpujobError:
        try:
            return self.zone(zone, deadline)
        except TpujobError as error:
            return error

    def _everywhere(
        self, zones: Sequence[str], deadline: Deadline
    ) -> dict[str, ZoneList | TpujobError] | None:
        """Return the lists of the zones that a list of all zones has reached; None: such lists are refused."""
        if self._all_refused:
            return None
        try:
            everything, missed = self._pages(ALL_ZONES, deadline)
        except Refused as refused:
            _log.info("%s; listing zone by zone", refused.message)
            return None
        except TpujobError as error:
            return dict.fromkeys(zones, error)
        found = {zone: ZoneList() for zone in zones if zone not in missed}
        for queued in everything.queued:
            if one := found.get(zone_of(queued.name)):
                one.queued.append(queued)
        for node in everything.nodes:
            if one := found.get(zone_of(node.name)):
                one.nodes.append(node)
        return {**found}

    def _pages(self, zone: str, deadline: Deadline) -> tuple[ZoneList, set[str]]:
        """What the lists hold, and the zones that they could not reach. Those of all zones are read at once: of
        thousands of slices each has many pages. A closed zone is asked only once."""
        api, request = self._api, {"parent": self._api.parent(zone), "page_size": PAGE}
        doing = "listing all zones" if zone == ALL_ZONES else f"listing {zone}"

        def listed(method: Method) -> list[Any]:
            return [raw(next(one.pages)) for one in api.pages(method, request, deadline, doing)]

        methods: list[Method] = ["list_queued_resources", "list_nodes"]
        if zone == ALL_ZONES:
            with ThreadPoolExecutor(len(methods), thread_name_prefix="pages") as pool:
                queued, nodes = pool.map(listed, methods)
        else:
            queued, nodes = map(listed, methods)
        self.calls += len(queued) + len(nodes)
        found = ZoneList(
            [one for page in queued for one in page.queued_resources],
            [one for page in nodes for one in page.nodes],
        )
        return found, {id_of(zone) for page in (*queued, *nodes) for zone in page.unreachable}


def zone_of(name: str) -> str:
    """Return the zone in a resource's name, `projects/P/locations/Z/nodes/N`."""
    return name.split("/")[3]
