"""Checks that the hosts of READY nodes still exist, as a cloud monitors its machines."""

import threading
from collections.abc import Mapping

from tpujob.emulator.farm_client import FarmApi, FarmError, FarmGone
from tpujob.emulator.tpu import interruptions
from tpujob.emulator.tpu.world import World

_EVERY_S = 1.0
_TIMES_GONE = 2  #: looks in a row, since a farm may be restarting


class FarmWatch:
    """Runs from `start` to `stop`. If the farm has ended or lacks a slice, its hosts are lost: the node is TERMINATED.
    If the farm does not answer, the node stays READY, but is not healthy."""

    def __init__(self, world: World, farm: FarmApi) -> None:
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
        with self._world.lock:  # before asking: a slice may come up meanwhile
            wanted = interruptions.with_hosts(self._world)
        if not wanted:
            return
        found: Mapping[str, frozenset[int]] | None = None
        reachable = False
        try:
            found, reachable = self._farm.slices(), True
            self._gone = 0
        except FarmGone:
            self._gone += 1
            if self._gone >= _TIMES_GONE:
                found = {}
        except FarmError:
            pass
        with self._world.lock:
            for node in wanted:
                node.unreachable = not reachable
                if found is not None:
                    node.hung = found.get(node.farm_name, frozenset())
                    if node.farm_name not in found:
                        interruptions.hosts_lost(self._world, node)
