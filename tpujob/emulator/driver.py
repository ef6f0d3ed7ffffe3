"""Drives the world: sleeps until its next timer is due, passes its orders on to the host farm, and checks that the
hosts of READY nodes still exist. Speaks to the host farm, which is another process.

One thread advances the world, one looks at the farm; a few more wait for the farm's answers.
"""

import http.client
import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from tpujob.emulator.client import call_control, read_ready_file
from tpujob.emulator.tpu import interruptions, nodes
from tpujob.emulator.tpu.records import BringUp, Disturb, Effect, SwitchOn, TakeDown
from tpujob.emulator.tpu.world import World

# The host farm -------------------------------------------------------------------------------------------------------


_BRING_UP_TIMEOUT_S = 120.0
_TIMEOUT_S = 20.0


class FarmError(Exception):
    """The farm refused or did not answer; the call may be repeated."""


class FarmGone(FarmError):
    """Nothing listens at the farm's address: it has ended, and its hosts with it."""


class FarmApi(Protocol):
    """Every call may be repeated, and raises FarmError."""

    def bring_up(self, wanted: BringUp) -> tuple[str, ...]:
        """Returns the hosts' addresses, by host number, once all hosts answer."""
        ...

    def guests(self, slice: str) -> tuple[dict[str, str], ...]:
        """The guest attributes of its hosts, by host number: `namespace/key` to value."""
        ...

    def take_down(self, slice: str) -> None:
        """Afterwards nothing of the slice is left."""
        ...

    def disturb(self, wanted: Disturb) -> None:
        """Returns when it has begun, or for `off` when it is done."""
        ...

    def switch_on(self, slice: str) -> None:
        """All of its hosts answer afterwards."""
        ...

    def slices(self) -> Mapping[str, frozenset[int]] | None:
        """The slices that it has, each with its hung hosts; None: they cannot be lost."""
        ...


class FarmClient:
    """The farm of another process; each call reads its ready file again."""

    def __init__(self, ready_file: Path) -> None:
        self._ready = ready_file

    def bring_up(self, wanted: BringUp) -> tuple[str, ...]:
        names = ("zone", "type", "metadata", "env", "image", "cut")
        body = {name: getattr(wanted, name) for name in names}
        body["hosts"] = [asdict(host) for host in wanted.hosts]
        answer = self._call("PUT", _path(wanted.slice), body, timeout=_BRING_UP_TIMEOUT_S)
        try:
            by_index = {int(h["index"]): str(h["address"]) for h in answer["hosts"]}
            return tuple(by_index[h.index] for h in wanted.hosts)
        except (KeyError, TypeError, ValueError) as error:
            raise FarmError(f"the host farm sent an invalid answer: {answer!r:.200}") from error

    def guests(self, slice: str) -> tuple[dict[str, str], ...]:
        return tuple(self._call("GET", _path(slice, "guests"))["guests"])

    def take_down(self, slice: str) -> None:
        self._call("DELETE", _path(slice))

    def disturb(self, wanted: Disturb) -> None:
        self._call("POST", _path(wanted.slice, wanted.what), dict(wanted.how))

    def switch_on(self, slice: str) -> None:
        self._call("POST", _path(slice, "on"))

    def slices(self) -> dict[str, frozenset[int]]:
        return {name: frozenset(hung) for name, hung in self._call("GET", "/slices").items()}

    def take_all_down(self) -> None:
        """End what an earlier emulator has left running."""
        for slice in self.slices():
            self.take_down(slice)

    def _call(
        self, method: str, path: str, body: Any = None, *, timeout: float = _TIMEOUT_S
    ) -> dict[str, Any]:
        try:
            where = read_ready_file(self._ready)
        except FileNotFoundError as error:
            raise FarmGone("the host farm does not run") from error
        except (OSError, ValueError) as error:
            raise FarmError(f"the host farm is not ready: {error}") from error
        try:
            status, raw = call_control(where, method, path, body, timeout=timeout)
        except (ConnectionRefusedError, FileNotFoundError) as error:
            raise FarmGone("the host farm does not run") from error
        except (OSError, http.client.HTTPException) as error:
            raise FarmError(f"the host farm does not answer: {error}") from error
        if method == "DELETE" and status == 404:
            return {}
        if status >= 300:
            raise FarmError(f"the host farm answered {status}: {raw[:200]!r}")
        return json.loads(raw) if raw else {}


def _path(slice: str, what: str = "") -> str:
    return f"/slices/{quote(slice)}{'/' + what if what else ''}"


# The driver ----------------------------------------------------------------------------------------------------------


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
            done = self._carry_out(effect)
        except FarmError as error:
            done = partial(self._failed, effect, str(error))
        with self._world.lock:
            done()

    def _carry_out(self, effect: Effect) -> Callable[[], None]:
        """Let the farm do it; returns what its answer means to the world. Raises FarmError."""
        world, farm = self._world, self._farm
        match effect:
            case BringUp(node, slice):
                addresses, guests = farm.bring_up(effect), farm.guests(slice)
                return lambda: nodes.hosts_up(world, node, addresses, guests)
            case TakeDown(node):
                farm.take_down(node.farm_name)
                return lambda: nodes.hosts_down(world, node)
            case Disturb():
                farm.disturb(effect)
                return lambda: None
            case SwitchOn(node):
                farm.switch_on(node.farm_name)
                return lambda: interruptions.hosts_back(world, node)

    def _failed(self, effect: Effect, reason: str) -> None:
        world = self._world
        world.record(f"host farm: {reason}")
        match effect:
            case BringUp(node):
                nodes.hosts_not_up(world, node, reason)
            case TakeDown(node):
                world.after(nodes.RETRY_S, lambda: nodes.take_down(world, node))
            case SwitchOn(node):
                world.after(nodes.RETRY_S, lambda: interruptions.switch_on(world, node))
            case Disturb():
                pass


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
