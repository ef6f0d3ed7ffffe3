"""Slices on Cloud TPU, through the official client: the real service, or the emulator at an insecure endpoint.

A slice is a queued resource and the node that it creates, both with the slice's name. A Multislice has several nodes,
with a number after that name. This module makes the calls; `request.py` builds the requests, `slice_state.py` and
`errors.py` interpret the answers. No call is retried here, and none waits for a long-running operation: the next look
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

from tpujob.adapters.calling import Count, Missing, uncounted
from tpujob.adapters.cloud_tpu.calls import Api, Exists, Throttle, ZoneClosed, refusal
from tpujob.adapters.cloud_tpu.catalog import CloudTpuCatalog
from tpujob.adapters.cloud_tpu.guest_attributes import GuestAttributes
from tpujob.adapters.cloud_tpu.lists import Lists, ZoneList
from tpujob.adapters.cloud_tpu.messages import id_of, node_seen, queued_seen
from tpujob.adapters.cloud_tpu.request import (
    Options,
    newer_fields,
    node_ids,
    queued_request,
    request_id,
    slice_of,
)
from tpujob.adapters.cloud_tpu.rest import QueuedByRest
from tpujob.adapters.cloud_tpu.slice_state import (
    NodeSeen,
    QueuedSeen,
    slice_state,
    state_without_nodes,
)
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.model import Cause, Slice
from tpujob.domain.observations import Absent, Present, SliceSeen, SliceState, Unknown
from tpujob.errors import Refused, TpujobError, Transient
from tpujob.lib.tries import Deadline
from tpujob.ports import Owned, SliceSurvey
from tpujob.protocol import JOB_LABEL, LABEL, OWNER_LABEL

_log = logging.getLogger(__name__)


class CloudTpuSlices:
    """Implements `ports.Slices`. Thread-safe."""

    def __init__(
        self,
        project: str,
        *,
        endpoint: str = "",
        rest_endpoint: str = "",
        owner: str = "local",
        options: Options | None = None,
        throttle: Throttle | None = None,
        creating: Throttle | None = None,
        count: Count = uncounted,
    ) -> None:
        """`endpoint`, `rest_endpoint`: gRPC address and URL of an emulator. `owner`: a label value that distinguishes
        this backend's slices from those of other backends in the project. `throttle`, `creating`: shared by the project
        (see Api); None: calls are unlimited."""
        self._project = project
        self.owner = owner
        self._options = options or Options()
        self.api = Api(
            project, endpoint=endpoint, throttle=throttle, creating=creating, count=count
        )
        self._rest = QueuedByRest(self.api, project, endpoint=rest_endpoint)
        self.guest_attributes = GuestAttributes(self.api)
        self._lists = Lists(self.api)
        self.catalog = CloudTpuCatalog(self.api)

    def look(self, slice: Slice, *, timeout: float) -> SliceSeen:
        try:
            return self._look(slice, Deadline(timeout))
        except TpujobError as error:
            return Unknown(error.message)

    def create(
        self, slice: Slice, *, job_id: str, public_key: str, timeout: float, user: str = ""
    ) -> None:
        deadline, options = Deadline(timeout), self._options
        if account := options.accounts.get(user):
            options = replace(options, service_account=account)
        names = {"project": self._project, "owner": self.owner, "job_id": job_id}
        request = queued_request(slice, options, **names, public_key=public_key)
        self._lists.forget(slice.zone)
        try:
            self._request(slice, request, deadline)
        except Exists:
            self._adopt(slice, job_id, deadline)

    def delete(self, slice: Slice, *, timeout: float, even_suspending: bool = False) -> None:
        deadline = Deadline(timeout)
        doing = f"deleting {slice.name}"
        with contextlib.suppress(Missing):
            if queued := self._read_queued(slice, deadline, doing):
                self._check_ours(slice, queued.marks)
                if queued.suspending and not even_suspending:
                    raise Transient(f"{doing}: waiting until the cloud has suspended it")
                request = {"name": self._queued_name(slice), "force": True}
                self.api.call("delete_queued_resource", request, deadline, doing)
                return
        for id, node in zip(node_ids(slice), self._read_nodes(slice, deadline, doing), strict=True):
            if node is not None:
                self._check_ours(slice, node.marks)
                with contextlib.suppress(Missing):
                    request = {"name": self.api.node(slice.zone, id)}
                    self.api.call("delete_node", request, deadline, doing)

    def list_all(self, zones: Sequence[str], *, timeout: float) -> list[Owned]:
        lists = self._lists.zones(zones, Deadline(timeout))
        owned = list[Owned]()
        for zone in zones:
            match lists[zone]:
                case ZoneList() as resources:
                    owned += self._owned_slices(zone, resources)
                case ZoneClosed():
                    continue
                case TpujobError() as error:
                    raise error
        return owned

    def survey(self, zones: Collection[str], *, timeout: float) -> SliceSurvey:
        """Survey the slices whose queued resource and listed nodes are all ours; others have to be polled by name. An
        ACTIVE slice is Unknown if none of its nodes is listed, PREEMPTED if only some are."""
        calls_before = self._lists.calls
        seen, missed = dict[str, SliceSeen](), dict[str, str]()
        for zone, result in self._lists.zones([*zones], Deadline(timeout)).items():
            if isinstance(result, ZoneList):
                seen |= self._listed_slices(result)
            else:
                missed[zone] = result.message
        return SliceSurvey(seen, missed, self._lists.calls - calls_before)

    def close(self) -> None:
        """Close the connection, if there is one; a later call opens another."""
        self.api.close()
        self._rest.close()

    # Looking

    def _look(self, slice: Slice, deadline: Deadline) -> SliceSeen:
        doing = f"reading {slice.name}"
        queued = self._read_queued(slice, deadline, doing)
        our_queued = queued if queued and self._is_ours(queued.marks) else None
        if our_queued and (state := state_without_nodes(our_queued)):
            return self._log_cause(slice, state, queued)
        nodes = self._read_nodes(slice, deadline, doing)
        our_nodes = [node if node and self._is_ours(node.marks) else None for node in nodes]
        seen = slice_state(our_queued, our_nodes)
        if isinstance(seen, Present) and seen.state is SliceState.READY and slice.ends_at is None:
            seen = replace(seen, ends_at=self._read_end(slice, deadline, doing))
        if seen is None and (queued or any(nodes)):
            return Absent()  # another owner's slice has this name, so ours certainly does not exist
        if seen is None:
            return self._confirm_absent(slice, deadline)
        return self._log_cause(slice, seen, queued, *nodes)

    def _log_cause(
        self, slice: Slice, seen: SliceSeen, *parts: QueuedSeen | NodeSeen | None
    ) -> SliceSeen:
        """Return `seen`; if it has a cause, log the parts that it was derived from."""
        if isinstance(seen, Present) and seen.cause is not None:
            _log.info("%s: %s", slice.name, parts)
        return seen

    def _confirm_absent(self, slice: Slice, deadline: Deadline) -> SliceSeen:
        """Return Absent if the zone's lists, all pages of them, lack the slice, too; else Unknown."""
        names = {slice.name, *node_ids(slice)}
        resources = self._lists.shared(slice.zone, deadline)
        listed = (*resources.queued, *resources.nodes)
        if any(id_of(resource.name) in names for resource in listed):
            return Unknown(f"{slice.name} is not found, but is still listed")
        return Absent()

    def _read_queued(self, slice: Slice, deadline: Deadline, doing: str) -> QueuedSeen | None:
        request = {"name": self._queued_name(slice)}
        with contextlib.suppress(Missing):
            if newer_fields(slice):
                return self._rest.get(request["name"], deadline, doing)
            return queued_seen(self.api.call("get_queued_resource", request, deadline, doing))
        return None

    def _read_end(self, slice: Slice, deadline: Deadline, doing: str) -> float | None:
        """Return when the cloud takes back a slice that is ready; None: at no time that it tells."""
        if not newer_fields(slice):
            return None
        name = self.api.node(slice.zone, node_ids(slice)[0])
        return self._rest.node_ends_at(name, deadline, doing)

    def _read_node(self, slice: Slice, id: str, deadline: Deadline, doing: str) -> NodeSeen | None:
        request = {"name": self.api.node(slice.zone, id)}
        with contextlib.suppress(Missing):
            return node_seen(self.api.call("get_node", request, deadline, doing))
        return None

    def _read_nodes(self, slice: Slice, deadline: Deadline, doing: str) -> list[NodeSeen | None]:
        """Return every node of the slice, in order; None in place of a node that does not exist. The nodes of a
        Multislice take one list call. Lists lag behind, so nodes that the list lacks are read by name, up to the first
        that is missing there, too."""
        ids = node_ids(slice)
        if len(ids) == 1:
            return [self._read_node(slice, ids[0], deadline, doing)]
        listed = self._nodes_in_zone(slice.zone, deadline, doing)
        nodes = [listed.get(id) for id in ids]
        if any(nodes):
            for place, id in enumerate(ids):
                nodes[place] = nodes[place] or self._read_node(slice, id, deadline, doing)
                if nodes[place] is None:
                    break
        return nodes

    def _nodes_in_zone(self, zone: str, deadline: Deadline, doing: str) -> dict[str, NodeSeen]:
        """Return every node in a zone, by id. Raises Transient for an incomplete list."""
        request = {"parent": self.api.parent(zone)}
        nodes = dict[str, NodeSeen]()
        for page in self.api.pages("list_nodes", request, deadline, doing):
            if page.unreachable:
                raise Transient(f"{doing}: the list of nodes is not complete")
            nodes |= {id_of(node.name): node_seen(node) for node in page.nodes}
        return nodes

    def _listed_slices(self, resources: ZoneList) -> dict[str, SliceSeen]:
        """Return our slices that have a queued resource, by name."""
        nodes = defaultdict[str, dict[int, NodeSeen]](dict)
        for message in resources.nodes:
            name, place = slice_of(id_of(message.name))
            nodes[name][place] = node_seen(message)
        slices = dict[str, SliceSeen]()
        for message in resources.queued:
            name, queued = id_of(message.name), queued_seen(message)
            parts = [nodes[name].get(place) for place in range(queued.nodes)]
            all_ours = all(self._is_ours(part.marks) for part in (queued, *parts) if part)
            seen = slice_state(queued, parts) if all_ours else None
            if seen is not None:
                slices[name] = seen
        return slices

    def _owned_slices(self, zone: str, resources: ZoneList) -> list[Owned]:
        """Return our slices in that list; a queued resource and its nodes are one slice."""
        parts = defaultdict[str, list[tuple[QueuedSeen | NodeSeen, int]]](list)
        for message in resources.queued:
            queued = queued_seen(message)
            parts[id_of(message.name)].append((queued, queued.nodes))
        for message in resources.nodes:
            name, place = slice_of(id_of(message.name))
            parts[name].append((node_seen(message), place + 1))
        return [
            _combine(name, zone, ours)
            for name, of_slice in parts.items()
            if (ours := [part for part in of_slice if self._is_ours(part[0].marks)])
        ]

    # Requesting

    def _request(self, slice: Slice, request: dict[str, Any], deadline: Deadline) -> None:
        """Request a slice, again if the cloud answers with the operation of an earlier, equal request. When that
        operation is done and no queued resource exists, the slice was deleted in the meantime. Then only a request with
        a new id creates another. Raises the error of its operation."""
        doing = f"requesting {slice.name}"
        operation = self._send(slice, request, deadline, doing)
        if not operation.done or self._read_queued(slice, deadline, doing):
            return
        retry = {**request, "request_id": request_id(operation.name)}
        operation = self._send(slice, retry, deadline, doing)
        if operation.done and operation.HasField("error"):
            from google.rpc.code_pb2 import Code

            raise refusal(doing, Code.Name(operation.error.code), operation.error.message)

    def _send(self, slice: Slice, request: dict[str, Any], deadline: Deadline, doing: str) -> Any:
        """Send the request, over REST if it has fields that the library lacks; return its operation."""
        if newer := newer_fields(slice):
            return self._rest.create(request, newer, deadline, doing)
        return self.api.call("create_queued_resource", request, deadline, doing).operation

    def _adopt(self, slice: Slice, job_id: str, deadline: Deadline) -> None:
        """Check that the slice that exists is the job's. Raises Refused, Transient."""
        doing = f"requesting {slice.name}"
        queued = self._read_queued(slice, deadline, doing)
        parts = [queued] if queued else list(filter(None, self._read_nodes(slice, deadline, doing)))
        if not parts:
            raise Transient(f"{doing}: the API says that it exists, but does not find it yet")
        self._check_ours(slice, parts[0].marks, job_id)

    def _check_ours(self, slice: Slice, marks: Mapping[str, str], job_id: str = "") -> None:
        if not self._is_ours(marks) or (job_id and marks.get(JOB_LABEL) != job_id):
            raise Refused(
                f"someone else uses the name {slice.name} in {slice.zone}",
                cause=Cause.BAD_SPEC,
                hint="it does not carry this backend's labels, so it is neither used nor deleted",
            )

    def _is_ours(self, marks: Mapping[str, str]) -> bool:
        return marks.get(LABEL) == "1" and marks.get(OWNER_LABEL) == self.owner

    def _queued_name(self, slice: Slice) -> str:
        return f"{self.api.parent(slice.zone)}/queuedResources/{slice.name}"


def _combine(name: str, zone: str, parts: Sequence[tuple[QueuedSeen | NodeSeen, int]]) -> Owned:
    """Return the slice that consists of these parts; with each part, how many TPU slices it shows."""
    newest_first = [part for part, _ in reversed(parts)]
    words = {QueuedSeen: "queued resource", NodeSeen: "node"}
    return Owned(
        name,
        zone,
        newest_first[0].marks.get(JOB_LABEL, ""),
        newest_first[0].created_at,
        CLOUD_TPU,
        ", ".join(dict.fromkeys(f"{words[type(part)]} {part.state}" for part, _ in parts)),
        next((part.type for part in newest_first if part.type), ""),
        next((part.pricing for part in newest_first if part.pricing), ""),
        max(tpu_slices for _, tpu_slices in parts),
        any(isinstance(part, QueuedSeen) and part.suspending for part in newest_first),
    )
