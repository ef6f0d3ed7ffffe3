"""The whole world as JSON, for `tpujob emulator status`."""

from dataclasses import asdict
from typing import Any

from tpujob.emulator.tpu import rules
from tpujob.emulator.tpu.records import Node, Queued
from tpujob.emulator.tpu.world import World
from tpujob.protocol import JOB_LABEL


def status(world: World, plan: dict[str, Any] | None) -> dict[str, Any]:
    """`plan`: the faults that come by themselves."""
    now = world.clock()
    held = {node.queued for node in world.nodes.values()}
    waiting = [q for q in world.queued.values() if q.name not in held]
    slices = [_slice_view(world, record, now) for record in (*world.nodes.values(), *waiting)]
    return {
        "zones": [_zone_view(world, zone) for zone in sorted(world.stock.hosts)],
        "slices": sorted(slices, key=lambda s: s["name"]),
        "faults": _faults_view(world, now),
        "schedule": plan,
        "profile": world.image,
        "cut": world.cut,
        "billed": {"operations": world.billed.counts(), "calls": dict(sorted(world.calls.items()))},
        "recent": [{"at": round(at, 3), "text": text} for at, text in world.history],
    }


def _zone_view(world: World, zone: str) -> dict[str, Any]:
    hosts = list(world.stock.hosts[zone].values())
    stock = {
        generation: {
            "hosts": sum(h.generation == generation for h in hosts),
            "used": sum(h.generation == generation and bool(h.used_by) for h in hosts),
        }
        for generation in dict.fromkeys(h.generation for h in hosts)
    }
    return {"zone": zone, "stock": stock, "bad": [h.name for h in hosts if h.fault]}


def _slice_view(world: World, record: Node | Queued, now: float) -> dict[str, Any]:
    """A node, or a queued resource without nodes."""
    node = record if isinstance(record, Node) else None
    queued = world.queued.get(record.queued) if isinstance(record, Node) else record
    spec = record.spec if isinstance(record, Node) else record.specs[0][1]
    ends = node.preempted_at if node else None
    return {
        "name": record.id,
        "request": queued.id if queued else "",
        "zone": record.zone,
        "type": spec.type,
        "pricing": spec.pricing,
        "job": spec.labels.get(JOB_LABEL, ""),
        "state": str(node.state) if node else "",
        "queued": str(queued.state) if queued else "",
        "initiator": queued.initiator if queued else "",
        "age_s": round(now - record.created_at, 1),
        "gone_in_s": None if ends is None else round(ends - now, 1),
        "maintenance": node is not None and node.maintenance_until > now,
        "unreachable": node is not None and node.unreachable,
        "error": queued.error.message if queued and queued.error else "",
        "hosts": _host_views(world, node) if node else [],
    }


def _host_views(world: World, node: Node) -> list[dict[str, Any]]:
    addresses = node.addresses or ("",) * len(node.physical)
    return [
        {
            "index": index,
            "physical": physical,
            "address": address,
            "fault": host.fault if (host := world.stock.find(physical)) else "",
            "factor": node.slowed.get(index, 1),
            "silent": index in node.silent,
            "hung": index in node.hung,
        }
        for index, (physical, address) in enumerate(zip(node.physical, addresses, strict=True))
    ]


def _faults_view(world: World, now: float) -> dict[str, Any]:
    faults = world.faults
    lasting = [s for s in faults.stockouts if s.until is None or s.until > now]
    return {
        "stockouts": [
            {**asdict(s), "for_s": None if s.until is None else round(s.until - now, 1)}
            for s in lasting
        ],
        "quotas": [
            {**asdict(q), "used": rules.quota_used(world, q.zone, q.generation, q.pricing)}
            for q in faults.quotas.values()
        ],
        "calls": [asdict(c) for c in faults.calls],
        "storage": [asdict(f) for f in faults.storage.all()],
        "api_bugs": sorted(faults.api_bugs),
        "max_run_s": faults.max_run_s,
        "unreachable": sorted(faults.unreachable),
        "bad_hosts": [{"physical": h.name, "fault": h.fault} for h in world.stock.bad()],
    }
