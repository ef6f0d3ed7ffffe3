"""The connections of one call to a slice: a bounded number in parallel, with an outcome for each host.

A connection costs one thread while it is idle, which is paramiko's, and up to six while a command runs.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from tpujob.adapters.ssh.host_keys import HostKeys
from tpujob.adapters.ssh.keys import Pins
from tpujob.adapters.ssh.transport import Login
from tpujob.errors import HostKeyChanged, Refused, TpujobError, Transient
from tpujob.lib import log_context
from tpujob.lib.tries import Deadline

if TYPE_CHECKING:
    from tpujob.adapters.ssh.connection import Connection

T = TypeVar("T")
#: by host: its result or error
Outcomes = dict[int, T | TpujobError]


@dataclass(frozen=True, slots=True)
class Bounds:
    """The limits of one process, whatever the number of hosts and calls: 6 x `workers` + `kept` threads."""

    workers: int = 28  #: connections in use
    share: int = 20  #: workers for one call: a slice of dead hosts must not block others
    kept: int = 8  #: connections that stay open between two steps of a call, for small slices


class Pool:
    """The threads of one process, and its budget of connections that stay open. Thread-safe."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.threads = ThreadPoolExecutor(bounds.workers, thread_name_prefix="ssh")
        self._free = bounds.kept
        self._lock = threading.Lock()

    def reserve(self, connections: int) -> bool:
        """Reserve connections that stay open; `give_back` releases them. Returns False if too few are left."""
        with self._lock:
            if connections > self._free:
                return False
            self._free -= connections
            return True

    def give_back(self, connections: int) -> None:
        with self._lock:
            self._free += connections


class SliceSession:
    """The connections of one call to the hosts of a slice; a context manager that closes them at its end."""

    def __init__(
        self,
        pool: Pool,
        logins: Mapping[int, Login],
        host_keys: HostKeys,
        pin: Callable[[Pins], None],
    ) -> None:
        """`pin`: called after each step with the host keys that were trusted for the first time."""
        from tpujob.adapters.ssh.connection import Connection  # with Fabric, at the first call

        self._pool = pool
        self._connections = {host: Connection(login, host_keys) for host, login in logins.items()}
        self._host_keys = host_keys
        self._pin = pin
        self._reserved = 0

    def __enter__(self) -> SliceSession:
        if self._pool.reserve(len(self._connections)):
            self._reserved = len(self._connections)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._pool.give_back(self._reserved)
        self._reserved = 0

    def each(self, work: Callable[[int, Connection], T], deadline: Deadline) -> Outcomes[T]:
        """Call `work(host, connection)` for every host. Returns by the deadline: hosts that are not done are
        disconnected, and their outcome is Transient."""
        queue, done = deque(self._connections), Outcomes[T]()

        def worker() -> None:
            while queue:
                try:
                    host = queue.popleft()
                except IndexError:  # another worker was faster
                    return
                done[host] = self._outcome(host, work, deadline)

        workers = min(self._pool.bounds.share, len(queue))
        futures = [
            self._pool.threads.submit(log_context.in_context(worker)) for _ in range(workers)
        ]
        wait(futures, timeout=deadline.remaining())
        queue.clear()
        for future in futures:
            if not future.cancel() and future.done():
                future.result()  # raises errors that are bugs, not outcomes
        outcomes = dict(done)
        for host in self._connections.keys() - outcomes.keys():
            self._connections[host].abort()  # wakes its thread
            outcomes[host] = Transient("no answer in time")
        self._pin(self._host_keys.take_new())
        return dict(sorted(outcomes.items()))

    def open(self, host: int, deadline: Deadline) -> Connection:
        """Open and return the connection to one host; the caller closes the session. Raises as `Connection.open`."""
        connection = self._connections[host]
        connection.open(deadline)
        self._pin(self._host_keys.take_new())
        return connection

    def close(self) -> None:
        """Close the connections. Safe to repeat, from any thread."""
        for connection in self._connections.values():
            connection.abort()

    def raise_worst(self, outcomes: Outcomes[T], *, afterword: str = "") -> None:
        """Raise the worst kind of error among the outcomes, with every host that has it: HostKeyChanged, else Refused,
        else Transient. `afterword`: added to the message."""
        for kind in (HostKeyChanged, Refused, TpujobError):
            errors = {h: o for h, o in sorted(outcomes.items()) if isinstance(o, kind)}
            if not errors:
                continue
            parts = (f"{self._label(host)}: {error.message}" for host, error in errors.items())
            text = "; ".join(parts) + afterword
            first = next(iter(errors.values()))
            if isinstance(first, HostKeyChanged):
                raise HostKeyChanged(text, hint=first.hint)
            if isinstance(first, Refused):
                raise Refused(text, cause=first.cause, hint=first.hint)
            raise Transient(text, hint=first.hint)

    def _outcome(
        self, host: int, work: Callable[[int, Connection], T], deadline: Deadline
    ) -> T | TpujobError:
        connection = self._connections[host]
        try:
            connection.open(deadline)
            return work(host, connection)
        except TpujobError as error:
            return error
        finally:
            if not self._reserved:
                connection.abort()

    def _label(self, host: int) -> str:
        return f"host {host} ({self._connections[host].login.address})"
