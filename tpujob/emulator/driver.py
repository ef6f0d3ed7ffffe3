"""Drives the world: sleeps until its next timer is due, passes its orders on to the host farm, and checks that the
hosts of READY nodes still exist.

One thread advances the world, one looks at the farm; a few more wait for the farm's answers.
"""

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from tpujob.emulator.farm_client import FarmApi, FarmError, FarmGone
from tpujob.emulator.tpu import interruptions, nodes
from tpujob.emulator.tpu.records import BringUp, Disturb, Effect, SwitchOn, TakeDown
from tpujob.emulator.tpu.world import World

_FARM_CALLS = 4  #: at once, so that a slice that comes up slowly does not delay another one's end
_LOOKS_EVERY_S = 1.0
_TIMES_GONE = 2  #: looks in a row, since a farm may be restarting


class Driver:
    def __init__(self, world: World, farm: FarmApi) -> None:
        self._world = world
        self._farm = farm
        self._stopping = False
        self._pool = ThreadPoolExecutor(_FARM_CALLS, thread_name_prefix="farm-call")
        self._thread = threading.Thread(target=self._run, name="world", daemon=True)
        self._watch = FarmWatch(world, farm)

    def start(self) -> None:
        self._thread.start()
        self._watch.start()

    def stop(self) -> None:
        """Returns when running calls to the farm have ended; the hosts stay as they are."""
        self._watch.stop()
        with self._world.lock:
            self._stopping = True
            self._world.lock.notify_all()
        self._thread.join()
        self._pool.shutdown(cancel_futures=True)

    def _run(self) -> None:
        world = self._world
        with world.lock:
            while not self._stopping:
                due = world.advance()
                for effect in world.take_effects():
                    self._pool.submit(self._perform, effect)
                world.lock.wait(None if due is None else max(0.0, due - world.clock()))

    def _perform(self, effect: Effect) -> None:
        try:
            addresses = self._carry(effect)
            guests = self._farm.guests(effect.slice) if isinstance(effect, BringUp) else ()
        except FarmError as error:
            self._failed(effect, str(error))
            return
        with self._world.lock:
            if isinstance(effect, BringUp):
                nodes.hosts_up(self._world, effect.node, effect.number, addresses, guests)
            elif isinstance(effect, TakeDown):
                nodes.hosts_down(self._world, effect.node, effect.number)
            elif isinstance(effect, SwitchOn):
                interruptions.hosts_back(self._world, effect.node, effect.number)

    def _carry(self, effect: Effect) -> tuple[str, ...]:
        match effect:
            case BringUp():
                return self._farm.bring_up(effect)
            case TakeDown():
                self._farm.take_down(effect.slice)
            case Disturb():
                self._farm.disturb(effect)
            case SwitchOn():
                self._farm.switch_on(effect.slice)
        return ()

    def _failed(self, effect: Effect, reason: str) -> None:
        with self._world.lock:
            self._world.record(f"host farm: {reason}")
            if isinstance(effect, BringUp):
                nodes.hosts_not_up(self._world, effect.node, effect.number, reason)
            elif isinstance(effect, TakeDown):
                nodes.hosts_not_down(self._world, effect.node, effect.number)
            elif isinstance(effect, SwitchOn):
                interruptions.hosts_not_back(self._world, effect.node, effect.number)


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
        while not self._ended.wait(_LOOKS_EVERY_S):
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
