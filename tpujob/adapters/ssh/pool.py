"""The connections of one call to a slice: a bounded number in parallel, with an outcome for each host.

A connection costs two threads while it is used, and one while it is kept: paramiko has a thread for each.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

from tpujob.adapters.calling import Deadline
from tpujob.adapters.ssh.connection import Connection, Login
from tpujob.adapters.ssh.host_keys import HostKeys
from tpujob.adapters.ssh.keys import Pins
from tpujob.errors import HostKeyChanged, Refused, TpujobError, Transient
from tpujob.lib import log_context

T = TypeVar("T")
#: for each host: its value, or the error
Outcomes = dict[int, T | TpujobError]


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much one process does at once, whatever the number of hosts and calls: at most 2 x `workers` + `kept`
    threads."""

    workers: int = 28  #: connections in use
    share: int = 20  #: of them, for one call: a slice of dead hosts must not block all others
    kept: int = 8  #: connections that small slices keep from one step of a call to the next


class Pool:
    """The threads of one process, and its allowance of kept connections."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.threads = ThreadPoolExecutor(bounds.workers, thread_name_prefix="ssh")
        self._free = bounds.kept
        self._lock = threading.Lock()

    def may_keep(self, connections: int) -> bool:
        """Reserve so many kept connections, if that many are free; `give_back` releases them."""
        with self._lock:
            if connections > self._free:
                return False
            self._free -= connections
            return True

    def give_back(self, connections: int) -> None:
        with self._lock:
            self._free += connections


class SliceSession:
    """The connections of one call to the hosts of one slice. Use with `with`: nothing is connected afterwards."""

    def __init__(
        self,
        pool: Pool,
        logins: Mapping[int, Login],
        host_keys: HostKeys,
        pin: Callable[[Pins], None],
    ) -> None:
        """`pin` gets the host keys seen for the first time, before the next step."""
        self._pool = pool
        self._connections = {host: Connection(login, host_keys) for host, login in logins.items()}
        self._host_keys = host_keys
        self._pin = pin
        self._kept = 0

    def __enter__(self) -> SliceSession:
        if self._pool.may_keep(len(self._connections)):
            self._kept = len(self._connections)
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
        self._pool.give_back(self._kept)
        self._kept = 0

    def each(self, work: Callable[[int, Connection], T], deadline: Deadline) -> Outcomes[T]:
        """Do `work` with every host over its connection. Returns by the deadline: a host that is not done by then is
        disconnected."""
        todo, done = deque(self._connections), Outcomes[T]()

        def lane() -> None:
            while todo:
                try:
                    host = todo.popleft()
                except IndexError:  # another lane was faster
                    return
                done[host] = self._one(host, work, deadline)

        lanes = min(self._pool.bounds.share, len(todo))
        futures = [self._pool.threads.submit(log_context.in_context(lane)) for _ in range(lanes)]
        wait(futures, timeout=deadline.remaining())
        todo.clear()
        for future in futures:
            if not future.cancel() and future.done():
                future.result()  # raises our own bugs, which are no outcome of a host
        outcomes = dict(done)
        for host in self._connections.keys() - outcomes.keys():
            self._connections[host].abort()  # wakes its thread
            outcomes[host] = Transient("no answer in time")
        self._pin(self._host_keys.take_met())
        return dict(sorted(outcomes.items()))

    def opened(self, host: int, deadline: Deadline) -> Connection:
        """The connection to one host, for a caller that closes the session itself. Raises as `Connection.open` does."""
        connection = self._connections[host]
        connection.open(deadline)
        self._pin(self._host_keys.take_met())
        return connection

    def close(self) -> None:
        """Safe to repeat, from any thread."""
        for connection in self._connections.values():
            connection.abort()

    def insist(self, outcomes: Outcomes[T], *, afterword: str = "") -> None:
        """Raise the worst kind of error there is, naming every host with it: HostKeyChanged, then Refused, then
        Transient."""
        for kind in (HostKeyChanged, Refused, TpujobError):
            errors = [(h, o) for h, o in sorted(outcomes.items()) if isinstance(o, kind)]
            if not errors:
                continue
            text = "; ".join(f"{self._label(h)}: {e.message}" for h, e in errors) + afterword
            first = errors[0][1]
            if isinstance(first, HostKeyChanged):
                raise HostKeyChanged(text, hint=first.hint)
            if isinstance(first, Refused):
                raise Refused(text, cause=first.cause, hint=first.hint)
            raise Transient(text, hint=first.hint)

    def _one(
        self, host: int, work: Callable[[int, Connection], T], deadline: Deadline
    ) -> T | TpujobError:
        connection = self._connections[host]
        try:
            connection.open(deadline)
            return work(host, connection)
        except TpujobError as error:
            return error
        finally:
            if not self._kept:
                connection.abort()

    def _label(self, host: int) -> str:
        return f"host {host} ({self._connections[host].login.address})"
