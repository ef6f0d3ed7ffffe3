"""Drives the world: sleeps until its next timer is due, and passes its orders on to the host farm.

One thread advances the world; a few more wait for the farm's answers.
"""

import threading
from concurrent.futures import ThreadPoolExecutor

from tpujob.emulator.farm_client import FarmApi, FarmError
from tpujob.emulator.farm_watch import FarmWatch
from tpujob.emulator.tpu import interruptions, nodes
from tpujob.emulator.tpu.records import BringUp, Disturb, Effect, SwitchOn, TakeDown
from tpujob.emulator.tpu.world import World

_FARM_CALLS = 4  #: at once, so that a slice that comes up slowly does not delay another one's end


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
            self._world.tell(f"host farm: {reason}")
            if isinstance(effect, BringUp):
                nodes.hosts_not_up(self._world, effect.node, effect.number, reason)
            elif isinstance(effect, TakeDown):
                nodes.hosts_not_down(self._world, effect.node, effect.number)
            elif isinstance(effect, SwitchOn):
                interruptions.hosts_not_back(self._world, effect.node, effect.number)
