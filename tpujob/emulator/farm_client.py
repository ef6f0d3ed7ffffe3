"""The host farm as the emulated API sees it: hosts of a slice come up, are disturbed, and go."""

from __future__ import annotations

import http.client
import json
import threading
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

from tpujob.emulator.tpu.records import BringUp, Disturb

_BRING_UP_TIMEOUT_S = 120.0
_TIMEOUT_S = 20.0


class FarmError(Exception):
    """The farm did not do it, or nobody knows; it may be asked again."""


class FarmGone(FarmError):
    """Nobody listens where the farm did: it has ended, and its hosts with it."""


class Farm(Protocol):
    """Every call may be repeated, and raises FarmError."""

    def bring_up(self, wanted: BringUp) -> tuple[str, ...]:
        """Returns the hosts' addresses, by host number, when all of them answer."""
        ...

    def guests(self, slice: str) -> tuple[dict[str, str], ...]:
        """What its hosts have published of themselves, by host number: `namespace/key` to value."""
        ...

    def take_down(self, slice: str) -> None:
        """Nothing of it is left afterwards."""
        ...

    def disturb(self, wanted: Disturb) -> None:
        """Returns when it has begun, or for `off` when it is done."""
        ...

    def switch_on(self, slice: str) -> None:
        """All of its hosts answer afterwards."""
        ...

    def names(self) -> frozenset[str] | None:
        """Of the slices that it has; None: they cannot be lost."""
        ...


class NoFarm:
    """Slices without hosts: addresses where nobody answers. For work on the API alone."""

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
        """There is nothing to take down; nor does the rest do anything."""

    def disturb(self, wanted: Disturb) -> None: ...

    def switch_on(self, slice: str) -> None: ...

    def names(self) -> None: ...


class FarmClient:
    """The farm of another process, found by its ready file, which is read anew for each call."""

    def __init__(self, ready: Path) -> None:
        self._ready = ready

    def bring_up(self, wanted: BringUp) -> tuple[str, ...]:
        hosts = [
            {"index": h.index, "physical": h.physical, "chips": h.chips, "env": dict(h.env)}
            for h in wanted.hosts
        ]
        body = {
            "zone": wanted.zone,
            "type": wanted.type,
            "metadata": dict(wanted.metadata),
            "hosts": hosts,
            "env": dict(wanted.env),
        }
        answer = self._call("PUT", _path(wanted.slice), body, timeout=_BRING_UP_TIMEOUT_S)
        try:
            by_index = {int(h["index"]): str(h["address"]) for h in answer["hosts"]}
            return tuple(by_index[h.index] for h in wanted.hosts)
        except (KeyError, TypeError, ValueError) as error:
            raise FarmError(f"the host farm's answer makes no sense: {answer!r:.200}") from error

    def guests(self, slice: str) -> tuple[dict[str, str], ...]:
        return tuple(self._call("GET", _path(slice, "guests"))["guests"])

    def take_down(self, slice: str) -> None:
        self._call("DELETE", _path(slice))

    def disturb(self, wanted: Disturb) -> None:
        self._call("POST", _path(wanted.slice, wanted.what), dict(wanted.how))

    def switch_on(self, slice: str) -> None:
        self._call("POST", _path(slice, "on"))

    def names(self) -> frozenset[str]:
        return frozenset(str(name) for name in self._call("GET", "/names").get("names", []))

    def take_all_down(self) -> None:
        """End what an earlier emulator has left running: its world is gone."""
        for slice in self.names():
            self.take_down(slice)

    def _call(
        self, method: str, path: str, body: Any = None, *, timeout: float = _TIMEOUT_S
    ) -> dict[str, Any]:
        try:
            ready = json.loads(self._ready.read_text(encoding="utf-8"))
            where, token = urlsplit(str(ready["control"])), str(ready["token"])
        except FileNotFoundError as error:
            raise FarmGone("the host farm is not ready: it does not run") from error
        except (OSError, ValueError, KeyError) as error:
            raise FarmError(f"the host farm is not ready: {error}") from error
        connection = http.client.HTTPConnection(where.netloc, timeout=timeout)
        try:
            connection.request(
                method,
                path,
                body=None if body is None else json.dumps(body),
                headers={"Authorization": f"Bearer {token}", "Content-Type": "application/json"},
            )
            response = connection.getresponse()
            raw = response.read()
        except ConnectionRefusedError as error:
            raise FarmGone("the host farm does not run") from error
        except (OSError, http.client.HTTPException) as error:
            raise FarmError(f"the host farm does not answer: {error}") from error
        finally:
            connection.close()
        if method == "DELETE" and response.status == 404:
            return {}
        if response.status >= 300:
            raise FarmError(f"the host farm said {response.status}: {raw[:200]!r}")
        return json.loads(raw) if raw else {}


def _path(slice: str, what: str = "") -> str:
    return f"/slices/{quote(slice)}{'/' + what if what else ''}"
