"""Faults of many slices at once, chosen by a seed: what a bad minute of a large cloud looks like."""

import random

from tpujob.emulator.faults import inject_hosts
from tpujob.emulator.tpu import interruptions, rules
from tpujob.emulator.tpu.records import ApiError, Node, NodeState
from tpujob.emulator.tpu.world import World


def preempt_many(
    world: World, count: int, zone: str = "", notice_s: float = 30.0, seed: int = 0
) -> list[Node]:
    """Preempt so many ready slices at the same moment, all of them in that zone, if it is given."""
    chosen = _chosen(world, count, zone, seed)
    for node in chosen:
        interruptions.preempt(world, node, notice_s)
    return chosen


def silence_many(world: World, percent: float, zone: str = "", seed: int = 0) -> list[Node]:
    """That share of the ready slices dies without notice; the API still says READY."""
    if not 0 < percent <= 100:
        raise ApiError("INVALID_ARGUMENT", "the share must be above 0, and at most 100 percent")
    chosen = _chosen(world, max(1, round(len(_ready(world, zone)) * percent / 100)), zone, seed)
    for node in chosen:
        inject_hosts.silence_all(world, node)
    return chosen


def _chosen(world: World, count: int, zone: str, seed: int) -> list[Node]:
    ready = _ready(world, zone)
    if not 1 <= count <= len(ready):
        raise ApiError("FAILED_PRECONDITION", f"{len(ready)} slices are ready, not {count}")
    return random.Random(seed).sample(ready, count)  # noqa: S311, for tests that can be repeated


def _ready(world: World, zone: str) -> list[Node]:
    if zone:
        rules.check_zone(world, zone)
    ready = [
        node
        for node in world.nodes.values()
        if node.state is NodeState.READY
        and node.preempted_at is None
        and not node.silent
        and zone in ("", node.zone)
    ]
    return sorted(ready, key=lambda node: node.number)
