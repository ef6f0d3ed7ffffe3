"""Looks whether the hosts that the API calls READY are still there, as a cloud does with its own machines."""

from __future__ import annotations

import threading

from tpujob.emulator.farm_client import Farm, FarmError, FarmGone
from tpujob.emulator.tpu import interruptions
from tpujob.emulator.tpu.world import World

_EVERY_S = 1.0
_TIMES_GONE = 2  #: looks in a row: a farm that is being started is not a dead one


class FarmWatch:
    """From `start` to `stop`. A farm that answers and lacks a slice, or that has ended, has lost its hosts: the node is
    TERMINATED. A farm that only does not answer leaves the node READY, and not healthy."""

    def __init__(self, world: World, farm: Farm) -> None:
        self._world = world
        self._farm = farm
        self._ended = threading.Event()
        self._gone = 0
        self._thread = threading.Thread(target=self._run, name="farm-watch", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_EVERY_S):
            self.look()

    def look(self) -> None:
        with self._world.lock:  # before the question: what comes up meanwhile is not missed
            wanted = interruptions.with_hosts(self._world)
        if not wanted:
            return
        try:
            found, reachable = self._farm.names(), True
            self._gone = 0
        except FarmGone:
            self._gone += 1
            found, reachable = frozenset[str]() if self._gone >= _TIMES_GONE else None, False
        except FarmError:
            found, reachable = None, False
        with self._world.lock:
            for node in wanted:
                node.unreachable = not reachable
                if found is not None and node.farm_name not in found:
                    interruptions.hosts_lost(self._world, node)
