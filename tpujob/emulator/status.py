"""The whole world as JSON, for `tpujob emulator status`."""

from __future__ import annotations

from typing import Any

from tpujob.emulator.faults.inject import JOB_LABEL
from tpujob.emulator.tpu import rules
from tpujob.emulator.tpu.records import Node, Queued
from tpujob.emulator.tpu.world import World


def status(world: World, plan: dict[str, Any] | None) -> dict[str, Any]:
    """`plan`: the faults that come by themselves."""
    now = world.clock()
    slices = [_node_view(world, node, now) for node in world.nodes.values()]
    held = {node.queued for node in world.nodes.values()}
    slices += [_queued_view(q, now) for q in world.queued.values() if q.name not in held]
    return {
        "zones": [_zone_view(world, zone) for zone in sorted(world.stock.hosts)],
        "slices": sorted(slices, key=lambda s: s["name"]),
        "faults": _faults_view(world, now),
        "script": plan,
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


def _node_view(world: World, node: Node, now: float) -> dict[str, Any]:
    queued = world.queued.get(node.queued)
    addresses = node.addresses or ("",) * len(node.physical)
    return {
        "name": node.id,
        "zone": node.zone,
        "type": node.spec.type,
        "pricing": node.spec.pricing,
        "job": node.spec.labels.get(JOB_LABEL, ""),
        "state": str(node.state),
        "queued": str(queued.state) if queued else "",
        "initiator": queued.initiator if queued else "",
        "age_s": round(now - node.created_at, 1),
        "gone_in_s": None if node.preempted_at is None else round(node.preempted_at - now, 1),
        "maintenance": node.maintenance_until > now,
        "unreachable": node.unreachable,
        "error": _error_text(queued),
        "hosts": [
            {
                "index": index,
                "physical": physical,
                "address": address,
                "fault": host.fault if (host := world.stock.find(physical)) else "",
                "factor": node.slowed.get(index, 1),
                "silent": index in node.silent,
            }
            for index, (physical, address) in enumerate(zip(node.physical, addresses, strict=True))
        ],
    }


def _queued_view(queued: Queued, now: float) -> dict[str, Any]:
    spec = queued.specs[0][1]
    return {
        "name": queued.id,
        "zone": queued.zone,
        "type": spec.type,
        "pricing": queued.pricing,
        "job": spec.labels.get(JOB_LABEL, ""),
        "state": "",
        "queued": str(queued.state),
        "initiator": queued.initiator,
        "age_s": round(now - queued.created_at, 1),
        "gone_in_s": None,
        "maintenance": False,
        "unreachable": False,
        "error": _error_text(queued),
        "hosts": [],
    }


def _faults_view(world: World, now: float) -> dict[str, Any]:
    faults = world.faults
    return {
        "stockouts": [
            {
                "zone": s.zone,
                "generation": s.generation,
                "for_s": None if s.until is None else round(s.until - now, 1),
                "fail": s.fail,
            }
            for s in faults.stockouts
            if s.until is None or s.until > now
        ],
        "quotas": [
            {
                "zone": q.zone,
                "generation": q.generation,
                "pricing": q.pricing,
                "limit": q.limit,
                "used": rules.quota_used(world, q.zone, q.generation, q.pricing),
            }
            for q in faults.quotas.values()
        ],
        "calls": [
            {
                "method": c.method,
                "code": c.code,
                "count": c.count,
                "when": c.when,
                "delay_s": c.delay,
            }
            for c in faults.calls
        ],
        "storage": [
            {
                "method": f.method,
                "status": f.status,
                "count": f.count,
                "when": f.when,
                "hang_s": f.hang,
                "path": f.path,
            }
            for f in faults.storage.all()
        ],
        "bad_hosts": [{"physical": h.name, "fault": h.fault} for h in world.stock.bad()],
    }


def _error_text(queued: Queued | None) -> str:
    return queued.error.message if queued and queued.error else ""
