"""How the emulated API reaches the host farm: bring hosts up, disturb them, take them down."""

import http.client
import json
import threading
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

from tpujob.emulator import ready
from tpujob.emulator.tpu.records import BringUp, Disturb

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


class NoFarm:
    """Slices without hosts, at addresses that do not answer: for work on the API alone."""

    def __init__(self) -> None:
        self._given = 0
        self._lock = threading.Lock()

    def bring_up(self, wanted: BringUp) -> tuple[str, ...]:
        with self._lock:
            first = self._given
            self._given += len(wanted.hosts)
        numbers = range(first, first + len(wanted.hosts))
        return tuple(f"10.{128 + n // 65000}.{n // 250 % 256}.{n % 250 + 2}" for n in numbers)

    def guests(self, slice: str) -> tuple[dict[str, str], ...]:  # noqa: ARG002
        return ()

    def take_down(self, slice: str) -> None:
        """There is nothing to take down; the other methods do nothing, too."""

    def disturb(self, wanted: Disturb) -> None: ...

    def switch_on(self, slice: str) -> None: ...

    def slices(self) -> None: ...


class FarmClient:
    """The farm of another process; each call reads its ready file again."""

    def __init__(self, ready_file: Path) -> None:
        self._ready = ready_file

    def bring_up(self, wanted: BringUp) -> tuple[str, ...]:
        answer = self._call("PUT", _path(wanted.slice), asdict(wanted), timeout=_BRING_UP_TIMEOUT_S)
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
        return {name: frozenset(hung) for name, hung in self._call("GET", "/names").items()}

    def ssh_port(self) -> int:
        """The port of every host."""
        try:
            return int(json.loads(self._ready.read_text(encoding="utf-8"))["ssh_port"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise FarmError(f"the host farm is not ready: {error}") from error

    def take_all_down(self) -> None:
        """End what an earlier emulator has left running."""
        for slice in self.slices():
            self.take_down(slice)

    def _call(
        self, method: str, path: str, body: Any = None, *, timeout: float = _TIMEOUT_S
    ) -> dict[str, Any]:
        try:
            where = ready.read(self._ready)
        except FileNotFoundError as error:
            raise FarmGone("the host farm does not run") from error
        except (OSError, ValueError) as error:
            raise FarmError(f"the host farm is not ready: {error}") from error
        try:
            status, raw = ready.call(where, method, path, body, timeout=timeout)
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
