"""Slices of the model of the cloud, as the adapter of Cloud TPU requests, reads, lists and deletes them.

The adapter's own pure functions translate states and errors; what is left out is the API between the two.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from tpujob.adapters.cloud_tpu.calls import Exists, refusal
from tpujob.adapters.cloud_tpu.request import MARKS, newer_fields, node_ids, slice_of
from tpujob.adapters.cloud_tpu.slice_state import NodeSeen, QueuedSeen, slice_state
from tpujob.domain.hardware.generations import CLOUD_TPU
from tpujob.domain.model import Cause, Endpoint, Slice
from tpujob.domain.observations import Absent, Present, SliceSeen, SliceState, Unknown
from tpujob.emulator.cloud import queue
from tpujob.emulator.cloud.records import ApiError, NewerFields, Node, NodeSpec, Queued
from tpujob.emulator.cloud.world import World
from tpujob.emulator.tpu.convert import code_number
from tpujob.errors import Refused, Transient
from tpujob.ports import Owned
from tpujob.protocol import JOB_LABEL, LABEL, OWNER_LABEL

PROJECT, OWNER = "tests", "tests"


def queued_name(zone: str, name: str) -> str:
    return f"projects/{PROJECT}/locations/{zone}/queuedResources/{name}"


def node_name(zone: str, id: str) -> str:
    return f"projects/{PROJECT}/locations/{zone}/nodes/{id}"


class ModelSlices:
    """The slices of one owner. After each change the caller lets the model `advance`."""

    def __init__(self, world: World, owner: str = OWNER) -> None:
        self.world, self.owner = world, owner

    # Request and delete

    def request(self, slice: Slice, job_id: str) -> Queued:
        """Request a slice, or adopt one that exists. Raise Refused, Transient."""
        name = queued_name(slice.zone, slice.name)
        marks = {LABEL: "1", JOB_LABEL: job_id, OWNER_LABEL: self.owner}
        version, several = slice.system_image, slice.tpu_slices > 1
        spec = NodeSpec(slice.type, version, slice.pricing, marks, {}, True, b"", several)
        specs = [(id, spec) for id in node_ids(slice)]
        fields = newer_fields(slice)
        newer = NewerFields(
            fields, fields.get("provisioningModel", ""), slice.run_for, slice.reservation
        )
        where = (PROJECT, slice.zone, slice.name)
        try:
            queue.create(self.world, *where, specs, api="v2", newer=newer)
        except ApiError as error:
            refused = refusal(f"requesting {slice.name}", error.code, error.message)
            existing = self.world.queued.get(name)
            if not isinstance(refused, Exists) or existing is None:
                raise refused from None
            self._check_ours(slice, existing, job_id)
        return self.world.queued[name]

    def delete(self, slice: Slice, *, even_suspending: bool = False) -> None:
        """Delete a slice with its nodes; absent is success. Raise Transient while it is being suspended, unless
        `even_suspending`; Refused."""
        self.check_deletable(slice, even_suspending=even_suspending)
        name = queued_name(slice.zone, slice.name)
        if name in self.world.queued:
            queue.delete(self.world, name, force=True, api="v2")

    def check_deletable(self, slice: Slice, *, even_suspending: bool) -> None:
        """Raise what `delete` raises."""
        queued = self.world.queued.get(queued_name(slice.zone, slice.name))
        if queued is None:
            return
        self._check_ours(slice, queued)
        if queued_seen(queued).suspending and not even_suspending:
            raise Transient(f"deleting {slice.name}: waiting until the cloud has suspended it")

    def _check_ours(self, slice: Slice, queued: Queued, job_id: str = "") -> None:
        marks = queued_seen(queued).marks
        if not self._is_ours(marks) or (job_id and marks.get(JOB_LABEL) != job_id):
            text = f"someone else uses the name {slice.name} in {slice.zone}"
            raise Refused(text, cause=Cause.BAD_SPEC)

    def _is_ours(self, marks: Mapping[str, str]) -> bool:
        return marks.get(LABEL) == "1" and marks.get(OWNER_LABEL) == self.owner

    # Look

    def look(self, slice: Slice) -> SliceSeen:
        queued = self.world.queued.get(queued_name(slice.zone, slice.name))
        parts = [self.world.nodes.get(node_name(slice.zone, id)) for id in node_ids(slice)]
        seen = _state(queued, parts) or Absent()
        ready = isinstance(seen, Present) and seen.state is SliceState.READY
        return replace(seen, ends_at=queued.ends_at) if ready and queued else seen

    def listed(self, lag: float = 0.0, torn: Iterable[str] = ()) -> dict[str, Present | Unknown]:
        """Return our slices as lists of all zones show them, `lag` seconds late. `torn`: slices whose last node is not
        listed."""
        found = defaultdict[str, dict[int, Node]](dict)
        for node in self.world.list_nodes(PROJECT, "-", lag):
            name, place = slice_of(node.id)
            found[name][place] = node
        seen = dict[str, Present | Unknown]()
        for queued in self.world.list_queued(PROJECT, "-", lag):
            parts = [found[queued.id].get(place) for place in range(len(queued.specs))]
            if queued.id in torn:
                parts[-1] = None
            ours = self._is_ours(queued.specs[0][1].labels)
            state = _state(queued, parts) if ours else None
            if state is not None:
                seen[queued.id] = state
        return seen

    def owned(self, zones: Sequence[str]) -> list[Owned]:
        """Return our slices in these zones."""
        every = [queued for queued in self.world.queued.values() if queued.zone in zones]
        return [
            Owned(
                queued.id,
                queued.zone,
                queued.specs[0][1].labels[JOB_LABEL],
                queued.created_at,
                CLOUD_TPU,
                f"queued resource {queued.state}",
                queued.specs[0][1].type,
                queued.pricing,
                len(queued.specs),
                queued_seen(queued).suspending,
            )
            for queued in every
            if self._is_ours(queued.specs[0][1].labels)
        ]


def _state(queued: Queued | None, parts: Sequence[Node | None]) -> Present | Unknown | None:
    seen = queued_seen(queued) if queued else None
    return slice_state(seen, [node_seen(node) if node else None for node in parts])


def queued_seen(queued: Queued) -> QueuedSeen:
    """Return what the adapter reads of a queued resource."""
    spec, error = queued.specs[0][1], queued.error
    return QueuedSeen(
        state=queued.state,
        initiator=queued.initiator or "STATE_INITIATOR_UNSPECIFIED",
        error_code=code_number(error.code) if error else 0,
        error=error.message if error else "",
        marks=_marks(spec.labels),
        created_at=queued.created_at,
        type=spec.type,
        pricing=queued.pricing,
        nodes=len(queued.specs),
    )


def node_seen(node: Node) -> NodeSeen:
    """Return what the adapter reads of a node."""
    return NodeSeen(
        state=node.state,
        endpoints=tuple(Endpoint(host, address) for host, address in enumerate(node.addresses)),
        marks=_marks(node.spec.labels),
        created_at=node.created_at,
        type=node.spec.type,
        pricing=node.spec.pricing,
    )


def _marks(labels: Mapping[str, str]) -> dict[str, str]:
    return {mark: labels[mark] for mark in MARKS if mark in labels}
