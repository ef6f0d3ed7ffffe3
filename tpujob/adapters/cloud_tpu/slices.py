"""Slices on Cloud TPU, through the official client: the real service, or the emulator at an insecure endpoint.

A slice is a queued resource and the node that it creates, both with the slice's name; a Multislice has several nodes,
with a number behind that name. This module makes the calls; `request.py` builds the requests, `slice_state.py` and
`errors.py` interpret the answers. No call is repeated here, and none waits for a long-running operation: the next look
shows the result.
"""
# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

import contextlib
import logging
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tpujob.adapters.calling import Count, Deadline, Missing, uncounted
from tpujob.adapters.cloud_tpu.calls import Api, Exists, Throttle, ZoneClosed, refusal
from tpujob.adapters.cloud_tpu.catalog import Catalog
from tpujob.adapters.cloud_tpu.guest_attributes import GuestAttributes
from tpujob.adapters.cloud_tpu.lists import Lists, ZoneList
from tpujob.adapters.cloud_tpu.messages import id_of, node_seen, queued_seen
from tpujob.adapters.cloud_tpu.request import (
    Options,
    node_ids,
    queued_request,
    request_id,
    slice_of,
)
from tpujob.adapters.cloud_tpu.slice_state import (
    NodeSeen,
    QueuedSeen,
    slice_state,
    without_nodes,
)
from tpujob.domain.model import Cause, Slice
from tpujob.domain.observations import Absent, Present, SliceSeen, Unknown
from tpujob.errors import Refused, TpujobError, Transient
from tpujob.ports import Owned, SliceSurvey
from tpujob.protocol import JOB_LABEL, LABEL, OWNER_LABEL

_log = logging.getLogger(__name__)


class CloudTpuSlices:
    """The port Slices. Threads may share it."""

    def __init__(
        self,
        project: str,
        *,
        endpoint: str = "",
        owner: str = "local",
        options: Options | None = None,
        throttle: Throttle | None = None,
        count: Count = uncounted,
    ) -> None:
        """`endpoint`: `host:port` of an emulator. `owner`: a label value that distinguishes this backend's slices from
        those of another backend in the project. `throttle`: shared by the project; without it calls are unlimited.
        `count`: called after each call."""
        self._project = project
        self.owner = owner
        self._options = options or Options()
        self.api = Api(project, endpoint=endpoint, throttle=throttle, count=count)
        self.guest_attributes = GuestAttributes(self.api)
        self._lists = Lists(self.api)
        self.catalog = Catalog(self.api)

    def look(self, slice: Slice, *, timeout: float) -> SliceSeen:
        try:
            return self._look(slice, Deadline(timeout))
        except TpujobError as error:
            return Unknown(error.message)

    def create(
        self, slice: Slice, *, job_id: str, public_key: str, timeout: float, user: str = ""
    ) -> None:
        deadline, options = Deadline(timeout), self._options
        if own := options.accounts.get(user):
            options = replace(options, service_account=own)
        of = {"project": self._project, "owner": self.owner, "job_id": job_id}
        request = queued_request(slice, options, **of, public_key=public_key)
        self._lists.forget(slice.zone)
        try:
            self._ask(slice, request, deadline)
        except Exists:
            self._adopt(slice, job_id, deadline)

    def delete(self, slice: Slice, *, timeout: float, even_suspending: bool = False) -> None:
        deadline = Deadline(timeout)
        doing = f"deleting {slice.name}"
        with contextlib.suppress(Missing):
            if there := self._queued(slice, deadline, doing):
                self._check_ours(slice, there.marks)
                if there.suspending and not even_suspending:
                    raise Transient(f"{doing}: waiting until the cloud has suspended it")
                request = {"name": self._queued_name(slice), "force": True}
                self.api.call("delete_queued_resource", request, deadline, doing)
                return
        for id, node in zip(node_ids(slice), self._nodes(slice, deadline, doing), strict=True):
            if node is not None:
                self._check_ours(slice, node.marks)
                with contextlib.suppress(Missing):
                    request = {"name": self.api.node(slice.zone, id)}
                    self.api.call("delete_node", request, deadline, doing)

    def list_all(self, zones: Sequence[str], *, timeout: float) -> list[Owned]:
        listed, found = self._lists.zones(zones, Deadline(timeout)), list[Owned]()
        for zone in zones:
            match listed[zone]:
                case ZoneList() as there:
                    found += self._owned(zone, there)
                case ZoneClosed():
                    continue
                case TpujobError() as error:
                    raise error
        return found

    def survey(self, zones: Collection[str], *, timeout: float) -> SliceSurvey:
        """Leaves to a poll by name each slice that belongs to others in part, or whose nodes are not all listed."""
        before, seen, missed = self._lists.calls, dict[str, SliceSeen](), dict[str, str]()
        for zone, there in self._lists.zones([*zones], Deadline(timeout)).items():
            if isinstance(there, ZoneList):
                seen |= self._surveyed(there)
            else:
                missed[zone] = there.message
        return SliceSurvey(seen, missed, self._lists.calls - before)

    def close(self) -> None:
        """Close the connection, if there is one; a later call opens another."""
        self.api.close()

    # Looking

    def _look(self, slice: Slice, deadline: Deadline) -> SliceSeen:
        doing = f"reading {slice.name}"
        queued = self._queued(slice, deadline, doing)
        our_queued = queued if queued and self._ours(queued.marks) else None
        if our_queued and (state := without_nodes(our_queued)):
            return self._noted(slice, state, queued)
        nodes = self._nodes(slice, deadline, doing)
        our_nodes = [node if node and self._ours(node.marks) else None for node in nodes]
        seen = slice_state(our_queued, our_nodes)
        if seen is None and (queued or any(nodes)):
            return Absent()  # another owner's slice has the name, so ours is positively not there
        if seen is None:
            return self._agreed_absent(slice, deadline)
        return self._noted(slice, seen, queued, *nodes)

    def _noted(
        self, slice: Slice, seen: SliceSeen, *parts: QueuedSeen | NodeSeen | None
    ) -> SliceSeen:
        if isinstance(seen, Present) and seen.cause is not None:
            _log.info("%s: %s", slice.name, parts)
        return seen

    def _agreed_absent(self, slice: Slice, deadline: Deadline) -> SliceSeen:
        """Return Absent only if the zone's own lists agree, all pages of them."""
        names = {slice.name, *node_ids(slice)}
        there = self._lists.shared(slice.zone, deadline)
        if any(id_of(one.name) in names for one in (*there.queued, *there.nodes)):
            return Unknown(f"{slice.name} is not found, but is still listed")
        return Absent()

    def _queued(self, slice: Slice, deadline: Deadline, doing: str) -> QueuedSeen | None:
        request = {"name": self._queued_name(slice)}
        with contextlib.suppress(Missing):
            return queued_seen(self.api.call("get_queued_resource", request, deadline, doing))
        return None

    def _node(self, slice: Slice, id: str, deadline: Deadline, doing: str) -> NodeSeen | None:
        request = {"name": self.api.node(slice.zone, id)}
        with contextlib.suppress(Missing):
            return node_seen(self.api.call("get_node", request, deadline, doing))
        return None

    def _nodes(self, slice: Slice, deadline: Deadline, doing: str) -> list[NodeSeen | None]:
        """Every node of the slice, in order; None: not there. The nodes of a Multislice take one list call. Where the
        list lacks nodes, they are asked for by name until one is missing there too: lists lag behind."""
        ids = node_ids(slice)
        if len(ids) == 1:
            return [self._node(slice, ids[0], deadline, doing)]
        listed = self._listed(slice, deadline, doing)
        found = [listed.get(id) for id in ids]
        if any(found):
            for place, id in enumerate(ids):
                found[place] = found[place] or self._node(slice, id, deadline, doing)
                if found[place] is None:
                    break
        return found

    def _listed(self, slice: Slice, deadline: Deadline, doing: str) -> dict[str, NodeSeen]:
        """Every node in the slice's zone, by id. Raises Transient where the list is not complete."""
        request, found = {"parent": self.api.parent(slice.zone)}, dict[str, NodeSeen]()
        for page in self.api.pages("list_nodes", request, deadline, doing):
            if page.unreachable:
                raise Transient(f"{doing}: the list of nodes is not complete")
            found |= {id_of(node.name): node_seen(node) for node in page.nodes}
        return found

    def _surveyed(self, there: ZoneList) -> dict[str, SliceSeen]:
        """Return the slices that have a queued resource, by name."""
        nodes = defaultdict[str, dict[int, NodeSeen]](dict)
        for message in there.nodes:
            name, place = slice_of(id_of(message.name))
            nodes[name][place] = node_seen(message)
        found = dict[str, SliceSeen]()
        for message in there.queued:
            name, queued = id_of(message.name), queued_seen(message)
            parts = [nodes[name].get(place) for place in range(queued.nodes)]
            whole = self._ours(queued.marks) and all(self._ours(n.marks) for n in parts if n)
            seen = slice_state(queued, parts) if whole else None
            if seen is not None:
                found[name] = seen
        return found

    def _owned(self, zone: str, there: ZoneList) -> list[Owned]:
        """Return our slices in that list; a queued resource and its nodes are one."""
        parts = defaultdict[str, list[tuple[QueuedSeen | NodeSeen, int]]](list)
        for message in there.queued:
            queued = queued_seen(message)
            parts[id_of(message.name)].append((queued, queued.nodes))
        for message in there.nodes:
            name, place = slice_of(id_of(message.name))
            parts[name].append((node_seen(message), place + 1))
        return [
            _together(name, zone, ours)
            for name, each in parts.items()
            if (ours := [part for part in each if self._ours(part[0].marks)])
        ]

    # Asking

    def _ask(self, slice: Slice, request: dict[str, Any], deadline: Deadline) -> None:
        """The cloud answers a repeated request with the operation of the first one. When that is done and nothing is
        there, the slice was deleted again, and only a request with a new id creates another."""
        doing = f"requesting {slice.name}"
        operation = self._create(request, deadline, doing)
        if not operation.done or self._queued(slice, deadline, doing):
            return
        retry = {**request, "request_id": request_id(operation.name)}
        operation = self._create(retry, deadline, doing)
        if operation.done and operation.HasField("error"):
            from google.rpc.code_pb2 import Code

            raise refusal(doing, Code.Name(operation.error.code), operation.error.message)

    def _create(self, request: dict[str, Any], deadline: Deadline, doing: str) -> Any:
        # as it was answered: to ask for its state would be another call
        return self.api.call("create_queued_resource", request, deadline, doing).operation

    def _adopt(self, slice: Slice, job_id: str, deadline: Deadline) -> None:
        doing = f"requesting {slice.name}"
        queued = self._queued(slice, deadline, doing)
        there = [queued] if queued else list(filter(None, self._nodes(slice, deadline, doing)))
        if not there:
            raise Transient(f"{doing}: the API says that it exists, but does not find it yet")
        self._check_ours(slice, there[0].marks, job_id)

    def _check_ours(self, slice: Slice, marks: Mapping[str, str], job_id: str = "") -> None:
        if not self._ours(marks) or (job_id and marks.get(JOB_LABEL) != job_id):
            raise Refused(
                f"someone else uses the name {slice.name} in {slice.zone}",
                cause=Cause.BAD_SPEC,
                hint="it does not carry this backend's labels, so it is neither used nor deleted",
            )

    def _ours(self, marks: Mapping[str, str]) -> bool:
        return marks.get(LABEL) == "1" and marks.get(OWNER_LABEL) == self.owner

    def _queued_name(self, slice: Slice) -> str:
        return f"{self.api.parent(slice.zone)}/queuedResources/{slice.name}"


def _together(name: str, zone: str, parts: Sequence[tuple[QueuedSeen | NodeSeen, int]]) -> Owned:
    """The slice that consists of these parts, each with the number of TPU slices that it shows."""
    newest_first = [part for part, _ in reversed(parts)]
    words = {QueuedSeen: "queued resource", NodeSeen: "node"}
    return Owned(
        name,
        zone,
        newest_first[0].marks.get(JOB_LABEL, ""),
        newest_first[0].created_at,
        ", ".join(dict.fromkeys(f"{words[type(part)]} {part.state}" for part, _ in parts)),
        next((part.type for part in newest_first if part.type), ""),
        next((part.pricing for part in newest_first if part.pricing), ""),
        max(tpu_slices for _, tpu_slices in parts),
        any(isinstance(part, QueuedSeen) and part.suspending for part in newest_first),
    )
