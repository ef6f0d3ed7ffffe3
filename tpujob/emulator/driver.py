"""The driver of the emulated cloud: sleeps until the world's next timer, passes the world's orders to the host farm,
and checks that the hosts of READY nodes still exist. The farm is another process.

One thread advances the world and one watches the farm; a few more wait for the farm's answers.
"""

import json
import logging
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from tpujob.emulator.client import call_control, read_ready_file
from tpujob.emulator.cloud import interruptions, nodes
from tpujob.emulator.cloud.records import BringUp, Disturb, Effect, SwitchOn, TakeDown
from tpujob.emulator.farm import HostUp, SliceRequest
from tpujob.emulator.tpu.served_world import ServedWorld
from tpujob.lib.threads import start_loop

log = logging.getLogger(__name__)

# The host farm -------------------------------------------------------------------------------------------------------


_BRING_UP_TIMEOUT_S = 120.0
_TIMEOUT_S = 20.0


class FarmError(Exception):
    """The farm refused or did not answer; the caller may repeat the call."""


class FarmGone(FarmError):
    """No process listens at the farm's address: the farm has ended, and its hosts with it."""


class FarmApi(Protocol):
    """The calls of a host farm. Each may be repeated, and raises FarmError."""

    def bring_up(self, request: SliceRequest) -> Sequence[HostUp]:
        """Bring up a slice; return its hosts in order, once all of them answer."""
        ...

    def take_down(self, slice: str) -> None:
        """Delete the slice with everything that belongs to it."""
        ...

    def disturb(self, request: Disturb) -> None:
        """Begin a disturbance; for `off`, return when the hosts are off."""
        ...

    def switch_on(self, slice: str) -> None:
        """Switch on all hosts of the slice; return when they answer."""
        ...

    def slices(self) -> Mapping[str, frozenset[int]] | None:
        """Return the farm's slices, each with its hung hosts; None from a farm that cannot lose slices."""
        ...


class FarmClient:
    """A client of the farm process; each call reads the farm's ready file again."""

    def __init__(self, ready_file: Path) -> None:
        self._ready = ready_file

    def bring_up(self, request: SliceRequest) -> Sequence[HostUp]:
        body = asdict(request)
        answer = self._call("PUT", f"/slices/{request.name}", body, timeout=_BRING_UP_TIMEOUT_S)
        return [HostUp(*host) for host in answer["hosts"]]

    def take_down(self, slice: str) -> None:
        self._call("DELETE", f"/slices/{slice}")

    def disturb(self, request: Disturb) -> None:
        self._call("POST", f"/slices/{request.slice}/{request.what}", dict(request.how))

    def switch_on(self, slice: str) -> None:
        self._call("POST", f"/slices/{slice}/on")

    def slices(self) -> dict[str, frozenset[int]]:
        return {name: frozenset(hung) for name, hung in self._call("GET", "/slices").items()}

    def take_all_down(self) -> None:
        """Delete all slices that an earlier emulator left behind."""
        for slice in self.slices():
            self.take_down(slice)

    def _call(
        self, method: str, path: str, body: Any = None, *, timeout: float = _TIMEOUT_S
    ) -> dict[str, Any]:
        try:
            control = read_ready_file(self._ready)
        except FileNotFoundError as error:
            raise FarmGone("the host farm does not run") from error
        except (OSError, ValueError) as error:
            raise FarmError(f"the host farm is not ready: {error}") from error
        try:
            status, raw = call_control(control, method, path, body, timeout=timeout)
        except (ConnectionRefusedError, FileNotFoundError) as error:
            raise FarmGone("the host farm does not run") from error
        except OSError as error:
            raise FarmError(f"the host farm does not answer: {error}") from error
        if status != 200:
            raise FarmError(f"the host farm answered {status}: {raw[:200]!r}")
        return json.loads(raw)


# The driver ----------------------------------------------------------------------------------------------------------


_FARM_CALLS = 4  #: calls at once, so that a slow slice does not delay the others
_WATCH_INTERVAL_S = 1.0
_TIMES_GONE = 2  #: checks in a row that find no farm, since a farm may be restarting


class Driver:
    def __init__(self, world: ServedWorld, farm: FarmApi) -> None:
        self._world = world
        self._farm = farm
        self._stopping = False
        self._pool = ThreadPoolExecutor(_FARM_CALLS, thread_name_prefix="farm-call")
        self._thread: threading.Thread | None = None
        self._watch = FarmWatch(world, farm)

    def start(self) -> None:
        self._thread = start_loop("world", self._run)
        self._watch.start()

    def stop(self) -> None:
        """Stop the threads; return when running calls to the farm have ended. The hosts keep running."""
        self._watch.stop()
        with self._world.lock:
            self._stopping = True
            self._world.lock.notify_all()
        if self._thread is not None:
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
            apply = self._carry_out(effect)
        except FarmError as error:
            apply = partial(self._handle_failure, effect, str(error))
        except Exception as error:  # a bug must not leave a node that is created for ever
            log.exception("an effect on the host farm failed")
            apply = partial(self._handle_failure, effect, repr(error))
        with self._world.lock:
            apply()

    def _carry_out(self, effect: Effect) -> Callable[[], None]:
        """Call the farm; return the change of the world that its answer causes. Raise FarmError."""
        world, farm = self._world, self._farm
        match effect:
            case BringUp(node, request):
                hosts = farm.bring_up(request)
                return lambda: nodes.hosts_up(world, node, hosts)
            case TakeDown(node):
                farm.take_down(node.farm_name)
                return lambda: nodes.hosts_down(world, node)
            case Disturb():
                farm.disturb(effect)
                return lambda: None
            case SwitchOn(node):
                farm.switch_on(node.farm_name)
                return lambda: interruptions.hosts_back(world, node)

    def _handle_failure(self, effect: Effect, reason: str) -> None:
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
    """A check, from `start` to `stop`, that the farm has the world's hosts. A node whose slice or farm has ended
    becomes TERMINATED; while the farm does not answer, nodes are READY, but unhealthy."""

    def __init__(self, world: ServedWorld, farm: FarmApi) -> None:
        self._world = world
        self._farm = farm
        self._ended = threading.Event()
        self._times_gone = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        self._thread = start_loop("farm-watch", self._run)

    def stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_WATCH_INTERVAL_S):
            self.look()

    def look(self) -> None:
        with self._world.lock:  # before the call: a slice may come up meanwhile
            expected = interruptions.nodes_with_hosts(self._world)
        if not expected:
            return
        hung_by_slice: Mapping[str, frozenset[int]] | None = None
        reachable = False
        try:
            hung_by_slice, reachable = self._farm.slices(), True
            self._times_gone = 0
        except FarmGone:
            self._times_gone += 1
            if self._times_gone >= _TIMES_GONE:
                hung_by_slice = {}
        except FarmError:
            pass
        with self._world.lock:
            for node in expected:
                node.unreachable = not reachable
                if hung_by_slice is not None:
                    node.hung = hung_by_slice.get(node.farm_name, frozenset())
                    if node.farm_name not in hung_by_slice:
                        interruptions.hosts_lost(self._world, node)
