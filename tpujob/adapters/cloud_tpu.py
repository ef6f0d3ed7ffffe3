"""Slices on Cloud TPU, through the official client: the real service, or the emulator at an insecure endpoint.

A slice is a queued resource and the node that it grants, both with the slice's name. What the API's states and errors
mean is in `cloud_tpu_tables.py` and `cloud_tpu_judge.py`; here are only the calls. No call is repeated here and none
waits for a long-running operation: the next look sees what came of it.
"""

# The client library's generated classes carry no types that a checker can follow.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false

from __future__ import annotations

import contextlib
import logging
import threading
import uuid
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from typing import Any

from tpujob.adapters.cloud_tpu_calls import Deadline, Exists, Missing, connect, pages_of, translated
from tpujob.adapters.cloud_tpu_judge import NodeSeen, QueuedSeen, judge
from tpujob.domain.model import Absent, Cause, Endpoint, Present, Slice, SliceSeen, Unknown
from tpujob.errors import Refused, TpujobError, Transient
from tpujob.ports import Owned

_log = logging.getLogger(__name__)

LABEL = "tpujob"
JOB_LABEL = "tpujob-job"
OWNER_LABEL = "tpujob-owner"

SSH_USER = "tpujob"
LISTERS = (
    8  #: zones that are listed at once: there are 40, and a list takes some tenths of a second
)


class CloudTpuSlices:
    """The port Slices. Threads may share it."""

    def __init__(
        self,
        project: str,
        *,
        endpoint: str = "",
        owner: str = "local",
        reservation: str = "",
        network: str = "",
        subnetwork: str = "",
        service_account: str = "",
        external_ips: bool = True,
    ) -> None:
        """`endpoint`: `host:port` of an emulator. `owner`: a label value that tells this backend's slices from
        those of another one in the same project. Empty network and account: the project's defaults."""
        self._project = project
        self._endpoint = endpoint
        self._owner = owner
        self._reservation = reservation
        self._network = {"network": network, "subnetwork": subnetwork}
        self._service_account = service_account
        self._external_ips = external_ips
        self._client_lock = threading.Lock()
        self._made: Any = None

    def look(self, slice: Slice, *, timeout: float) -> SliceSeen:
        """What the cloud says of it now. Never raises: what could not be seen is Unknown."""
        try:
            return self._look(slice, Deadline(timeout))
        except TpujobError as error:
            return Unknown(error.message)

    def create(self, slice: Slice, *, job_id: str, public_key: str, timeout: float) -> None:
        """Ask for it; returns when the request is accepted, not when the slice is ready. One that exists and carries
        our labels is adopted. Raises Transient, or Refused with its cause."""
        deadline = Deadline(timeout)
        request = self._request(slice, job_id, public_key)
        try:
            with translated(f"asking for {slice.name}"):
                self._client().create_queued_resource(request, **deadline.call())
        except Exists:
            self._adopt(slice, job_id, deadline)

    def delete(self, slice: Slice, *, timeout: float) -> None:
        """Ask for its end, node and queued resource; returns when that is accepted. Absent is success.
        Raises Transient, Refused; what carries the name but is not ours is Refused and stays."""
        deadline = Deadline(timeout)
        with contextlib.suppress(Missing), translated(f"deleting {slice.name}"):
            if queued := self._queued(slice, deadline):
                self._check_ours(slice, queued.labels)
                request = {"name": self._queued_name(slice), "force": True}
                self._client().delete_queued_resource(request, **deadline.call())
            elif node := self._node(slice, deadline):
                self._check_ours(slice, node.labels)
                self._client().delete_node(name=self._node_name(slice), **deadline.call())

    def list_all(self, zones: Sequence[str], *, timeout: float) -> list[Owned]:
        """Everything in those zones that carries our label, whatever its state; node and queued resource of one name
        are one. A zone that is closed to the project holds nothing. Raises Transient, Refused."""
        deadline = Deadline(timeout)
        with ThreadPoolExecutor(LISTERS, thread_name_prefix="list") as pool:
            found = pool.map(self._list_zone, zones, repeat(deadline))
            return [owned for of_zone in found for owned in of_zone]

    def close(self) -> None:
        """Close the connection, if there is one; a later call opens another."""
        with self._client_lock:
            made, self._made = self._made, None
        if made is not None:
            made.transport.close()

    # Looking

    def _look(self, slice: Slice, deadline: Deadline) -> SliceSeen:
        queued, node = self._queued(slice, deadline), self._node(slice, deadline)
        our_queued = queued if queued and self._ours(queued.labels) else None
        our_node = node if node and self._ours(node.labels) else None
        seen = judge(our_queued, our_node)
        if seen is None and (queued or node):
            return Absent()  # the name is somebody else's, so ours is positively not there
        if seen is None:
            return self._agreed_absent(slice, deadline)
        if isinstance(seen, Present) and seen.cause is not None:
            _log.info("%s: %r %r", slice.name, queued, node)
        return seen

    def _agreed_absent(self, slice: Slice, deadline: Deadline) -> SliceSeen:
        """Gone only if the lists agree, all pages of them."""
        client, request = self._client(), {"parent": self._parent(slice.zone)}
        for call, names in (
            (client.list_nodes, _node_names),
            (client.list_queued_resources, _queued_names),
        ):
            with translated(f"listing {slice.zone}"):
                pages = list(pages_of(call, request, deadline))
            if any(page.unreachable for page in pages):
                return Unknown(f"{slice.name} is not found, but the list is not complete")
            if any(slice.name in names(page) for page in pages):
                return Unknown(f"{slice.name} is not found, but is still listed")
        return Absent()

    def _queued(self, slice: Slice, deadline: Deadline) -> QueuedSeen | None:
        try:
            with translated(f"looking at {slice.name}"):
                name = self._queued_name(slice)
                return _queued_seen(
                    self._client().get_queued_resource(name=name, **deadline.call())
                )
        except Missing:
            return None

    def _node(self, slice: Slice, deadline: Deadline) -> NodeSeen | None:
        try:
            with translated(f"looking at {slice.name}"):
                name = self._node_name(slice)
                return _node_seen(self._client().get_node(name=name, **deadline.call()))
        except Missing:
            return None

    def _list_zone(self, zone: str, deadline: Deadline) -> list[Owned]:
        client, request = self._client(), {"parent": self._parent(zone)}
        found: dict[str, Owned] = {}
        try:
            with translated(f"listing {zone}"):
                for page in pages_of(client.list_queued_resources, request, deadline):
                    for queued in page.queued_resources:
                        self._add(found, _id(queued.name), zone, _queued_seen(queued))
                for page in pages_of(client.list_nodes, request, deadline):
                    for node in page.nodes:
                        self._add(found, _id(node.name), zone, _node_seen(node))
        except Refused as refused:
            if "is not found or access is unauthorized" not in refused.message:
                raise
        return list(found.values())

    def _add(
        self, found: dict[str, Owned], name: str, zone: str, seen: QueuedSeen | NodeSeen
    ) -> None:
        if self._ours(seen.labels):
            job = seen.labels.get(JOB_LABEL, "")
            kind = "node" if isinstance(seen, NodeSeen) else "queued resource"
            detail = f"{kind} {seen.state}"
            type, pricing = seen.type, seen.pricing
            if known := found.get(name):
                detail = f"{known.detail}, {detail}"
                type, pricing = type or known.type, pricing or known.pricing
            found[name] = Owned(name, zone, job, seen.created_at, detail, type, pricing)

    # Asking

    def _request(self, slice: Slice, job_id: str, public_key: str) -> dict[str, Any]:
        parent = self._parent(slice.zone)
        node: dict[str, Any] = {
            "accelerator_type": slice.type,
            "runtime_version": slice.runtime_version,
            "labels": {LABEL: "1", JOB_LABEL: job_id, OWNER_LABEL: self._owner},
            "metadata": {
                "ssh-keys": f"{SSH_USER}:{public_key.strip()}",
                "block-project-ssh-keys": "TRUE",
                "enable-oslogin": "FALSE",  # else the key above is ignored
                "enable-guest-attributes": "TRUE",
            },
            "network_config": {**self._network, "enable_external_ips": self._external_ips},
        }
        if self._service_account:
            scope = ["https://www.googleapis.com/auth/cloud-platform"]
            node["service_account"] = {"email": self._service_account, "scope": scope}
        asked: dict[str, Any] = {}
        if slice.pricing == "spot":
            asked["spot"] = {}  # then the node must have no scheduling_config
        elif slice.pricing == "reserved":
            asked["guaranteed"] = {}
            node["scheduling_config"] = {"reserved": True}
            if self._reservation:
                asked["reservation_name"] = f"{parent}/reservations/{self._reservation}"
        spec = {"parent": parent, "node_id": slice.name, "node": node}
        asked["tpu"] = {"node_spec": [spec]}
        return {
            "parent": parent,
            "queued_resource_id": slice.name,
            "queued_resource": asked,
            # The same for every try, so that one whose answer was lost is recognised.
            "request_id": str(
                uuid.uuid5(uuid.NAMESPACE_URL, f"{self._owner}/{job_id}/{parent}/{slice.name}")
            ),
        }

    def _adopt(self, slice: Slice, job_id: str, deadline: Deadline) -> None:
        seen = self._queued(slice, deadline) or self._node(slice, deadline)
        if seen is None:
            raise Transient(f"asking for {slice.name}: it exists, and is not found")
        self._check_ours(slice, seen.labels, job_id)

    def _check_ours(self, slice: Slice, labels: Mapping[str, str], job_id: str = "") -> None:
        if not self._ours(labels) or (job_id and labels.get(JOB_LABEL) != job_id):
            raise Refused(
                f"the name {slice.name} in {slice.zone} is taken by someone else",
                cause=Cause.BAD_SPEC,
                hint="it does not carry this backend's labels, so it is neither used nor deleted",
            )

    def _ours(self, labels: Mapping[str, str]) -> bool:
        return labels.get(LABEL) == "1" and labels.get(OWNER_LABEL) == self._owner

    # Names and connection

    def _parent(self, zone: str) -> str:
        return f"projects/{self._project}/locations/{zone}"

    def _queued_name(self, slice: Slice) -> str:
        return f"{self._parent(slice.zone)}/queuedResources/{slice.name}"

    def _node_name(self, slice: Slice) -> str:
        return f"{self._parent(slice.zone)}/nodes/{slice.name}"

    def _client(self) -> Any:
        with self._client_lock:
            if self._made is None:
                self._made = connect(self._endpoint)
            return self._made


# From messages -------------------------------------------------------------------------------------------------------


def _node_names(page: Any) -> set[str]:
    return {_id(node.name) for node in page.nodes}


def _queued_names(page: Any) -> set[str]:
    return {_id(queued.name) for queued in page.queued_resources}


def _id(name: str) -> str:
    return name.rpartition("/")[2]


def _queued_seen(queued: Any) -> QueuedSeen:
    raw = type(queued).pb(queued)  # the wrapper warns of enum values that it does not know
    specs = raw.tpu.node_spec
    error = raw.state.failed_data.error
    return QueuedSeen(
        state=_word(raw.state, "state"),
        initiator=_word(raw.state, "state_initiator"),
        error_code=error.code,
        error=error.message,
        labels=dict(specs[0].node.labels) if specs else {},
        created_at=raw.create_time.ToNanoseconds() / 1e9,
        type=specs[0].node.accelerator_type if specs else "",
        pricing=_pricing(
            spot=raw.HasField("spot"),
            reserved=bool(raw.reservation_name)
            or any(one.node.scheduling_config.reserved for one in specs),
        ),
    )


def _node_seen(node: Any) -> NodeSeen:
    raw = type(node).pb(node)
    health = _word(raw, "health")
    good = health in ("HEALTHY", "HEALTH_UNSPECIFIED")
    return NodeSeen(
        state=_word(raw, "state"),
        endpoints=tuple(
            Endpoint(host, one.ip_address, one.access_config.external_ip)
            for host, one in enumerate(raw.network_endpoints)
        ),
        detail="" if good else f"{health} {raw.health_description}".strip(),
        labels=dict(raw.labels),
        created_at=raw.create_time.ToNanoseconds() / 1e9,
        type=raw.accelerator_type,
        pricing=_pricing(
            spot=raw.scheduling_config.spot or raw.scheduling_config.preemptible,
            reserved=raw.scheduling_config.reserved,
        ),
    )


def _pricing(*, spot: bool, reserved: bool) -> str:
    return "spot" if spot else "reserved" if reserved else "on-demand"


def _word(message: Any, field: str) -> str:
    """The name of an enum field's value; a value newer than the library is its number."""
    value = getattr(message, field)
    known = message.DESCRIPTOR.fields_by_name[field].enum_type.values_by_number
    return known[value].name if value in known else str(value)
