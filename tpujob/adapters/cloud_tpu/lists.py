"""What the Cloud TPU API lists: the queued resources and the nodes of one zone, or of many at once.

All zones (`locations/-`) take two calls and not two a zone. That both lists have it is seen in `gcloud --zone=-` and,
of nodes, in public code; it is not documented. So a refusal of it, and each zone that its answer calls unreachable,
lead to the zones' own lists. A list that is not complete is an error of its zone, never an empty one.
"""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from tpujob.adapters.calling import Deadline
from tpujob.adapters.cloud_tpu.calls import Api, Method
from tpujob.adapters.cloud_tpu.messages import id_of
from tpujob.errors import Refused, TpujobError, Transient

_log = logging.getLogger(__name__)

ALL_ZONES = "-"
#: zones that are listed at once, one by one: there are 40, and a list takes some tenths of a second
AT_ONCE = 8

_LISTS: tuple[tuple[Method, str], ...] = (
    ("list_queued_resources", "queued_resources"),
    ("list_nodes", "nodes"),
)


@dataclass(frozen=True, slots=True)
class ZoneList:
    """Everything in one zone, as messages of the API."""

    queued: list[Any] = field(default_factory=list[Any])
    nodes: list[Any] = field(default_factory=list[Any])


class Lists:
    """Threads may share it."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._all_refused = False  #: this API has no list of all zones

    def zone(self, zone: str, deadline: Deadline) -> ZoneList:
        """Raises Transient, also for a list that is not complete; ZoneClosed, Refused."""
        found, missed = self._pages(zone, deadline)
        if missed:
            raise Transient(f"listing {zone}: the list is not complete")
        return found

    def zones(
        self, zones: Sequence[str], deadline: Deadline
    ) -> Mapping[str, ZoneList | TpujobError]:
        """Each of them, or why it could not be listed: Transient, ZoneClosed or Refused."""
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
        """Those that the lists of all zones have reached; None: such lists are refused."""
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
        """What the lists hold, and the zones that they could not reach."""
        api, request = self._api, {"parent": self._api.parent(zone)}
        doing = "listing all zones" if zone == ALL_ZONES else f"listing {zone}"
        pages = {
            field: list(api.pages(method, request, deadline, doing=doing))
            for method, field in _LISTS
        }
        found = {
            field: [one for page in listed for one in getattr(page, field)]
            for field, listed in pages.items()
        }
        missed = {
            id_of(z) for listed in pages.values() for page in listed for z in page.unreachable
        }
        return ZoneList(found["queued_resources"], found["nodes"]), missed


def zone_of(name: str) -> str:
    """Of a resource's name, `projects/P/locations/Z/nodes/N`."""
    return name.split("/")[3]
