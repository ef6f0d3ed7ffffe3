"""The client of a running emulator's control interface. Standard library only, for the command line's start time."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tpujob.emulator import ready
from tpujob.errors import (
    BackendGone,
    BadRequest,
    IllegalInState,
    NotFound,
    TpujobError,
    Unauthorized,
)

_TIMEOUT_S = 10.0
_START_IT = "Start it with `tpujob up`."
_ERRORS: dict[int, type[TpujobError]] = {
    400: BadRequest,
    401: Unauthorized,
    404: NotFound,
    409: IllegalInState,
}


class EmulatorClient:
    """Every method raises BackendGone when nothing answers, BadRequest, NotFound or IllegalInState when the emulator
    refuses. A `target` is a slice's name or a job's id; empty: the only slice that is ready."""

    def __init__(self, url: str, token: str) -> None:
        self._where = (url, token)

    @staticmethod
    def from_ready(file: Path) -> EmulatorClient:
        """The emulator that wrote this ready file. Raises BackendGone if there is no file."""
        try:
            return EmulatorClient(*ready.read(file))
        except (OSError, ValueError) as error:
            raise BackendGone("the emulator is not running", hint=_START_IT) from error

    def status(self) -> dict[str, Any]:
        return self._call("GET", "/status")

    def preempt(self, target: str = "", *, notice_s: float = 30.0) -> dict[str, Any]:
        """SIGTERM and the metadata flag now; after the notice the hosts are gone."""
        return self._call("POST", "/preempt", target=target, notice_s=notice_s)

    def maintain(
        self,
        target: str = "",
        *,
        window_s: float = 60.0,
        restart: bool = False,
        notice_s: float = 0.0,
    ) -> dict[str, Any]:
        """Announce maintenance on the hosts' metadata servers; with `restart` the hosts are off for the window, which
        begins `notice_s` later, and the node is REPAIRING."""
        values = {"window_s": window_s, "restart": restart, "notice_s": notice_s}
        return self._call("POST", "/maintain", target=target, **values)

    def silence(self, target: str = "", *, host: int | None = None) -> dict[str, Any]:
        """One host, or all, die without notice; the API still says READY."""
        return self._call("POST", "/silence", target=target, host=host)

    def hang(
        self, target: str = "", *, host: int | None = None, off: bool = False
    ) -> dict[str, Any]:
        """Stop the program's processes on one host, or all; `off`: they continue."""
        return self._call("POST", "/hang", target=target, host=host, off=off)

    def oom(self, target: str = "", *, host: int = 0) -> dict[str, Any]:
        """Kill the biggest process of the program on that host, as the kernel does when memory is short."""
        return self._call("POST", "/oom", target=target, host=host)

    def delete(self, target: str = "") -> dict[str, Any]:
        """Delete node and queued resource, as a person may do in the console."""
        return self._call("POST", "/delete", target=target)

    def suspend(self, target: str = "") -> dict[str, Any]:
        """Delete the node alone: the queued resource becomes SUSPENDED, by the user."""
        return self._call("POST", "/suspend", target=target)

    def slow(
        self, target: str = "", *, host: int, factor: float, for_s: float | None = None
    ) -> dict[str, Any]:
        """Give one host's processes 1/factor of their time, for a while or until a factor of 1 ends it."""
        return self._call("POST", "/slow", target=target, host=host, factor=factor, for_s=for_s)

    def stockout(
        self,
        zone: str,
        type: str = "",
        *,
        for_s: float | None = None,
        off: bool = False,
        fail: bool = False,
    ) -> None:
        """No capacity for new slices. Requests wait in the queue; with `fail` they fail at once."""
        self._call("POST", "/stockout", zone=zone, type=type, for_s=for_s, off=off, fail=fail)

    def quota(self, zone: str, type: str, limit: int | None, *, pricing: str = "") -> None:
        """None: no limit. Empty pricing: the limit holds for each pricing."""
        self._call("POST", "/quota", zone=zone, type=type, limit=limit, pricing=pricing)

    def api_error(
        self,
        method: str,
        code: str = "UNAVAILABLE",
        *,
        count: int = 1,
        when: str = "pre",
        delay_s: float = 0.0,
        message: str = "",
    ) -> None:
        """The next `count` calls hang for `delay_s` and answer `code`, before (`pre`) or after (`post`) taking effect.
        `OK` only hangs. A count of 0 removes the method's faults."""
        parameters = {"count": count, "when": when, "delay_s": delay_s, "message": message}
        self._call("POST", "/api-error", method=method, code=code, **parameters)

    def storage_error(
        self,
        status: int = 503,
        *,
        method: str = "*",
        count: int = 1,
        when: str = "pre",
        hang_s: float = 0.0,
        path: str = "",
        off: bool = False,
    ) -> None:
        """The next `count` requests of Cloud Storage (GET, LIST, POST, PUT, PATCH or DELETE) whose bucket and name
        contain `path` hang for `hang_s` and answer `status`, before (`pre`) or after (`post`) taking effect. A status
        of 200 only hangs. `off` removes all of these faults."""
        values = {"status": status, "method": method, "count": count, "when": when}
        self._call("POST", "/storage-error", **values, hang_s=hang_s, path=path, off=off)

    def break_host(self, physical: str, fault: str) -> None:
        """Programs that start there from now on get the fault as TPUJOB_FAULT; an empty one mends the host. BadRequest
        for a fault that programs would not understand."""
        self._call("POST", "/break-host", physical=physical, fault=fault)

    def chaos(
        self, seed: int, *, rate: float = 1.0, for_s: float | None = None, only: Sequence[str] = ()
    ) -> dict[str, Any]:
        """Faults at random, the same for the same seed, rate and kinds; `rate` is a multiple of the usual one. Replaces
        the running plan. Returns the first faults."""
        return self._call("POST", "/chaos", seed=seed, rate=rate, for_s=for_s, only=list(only))

    def schedule(self, steps: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Faults at their times: `{"at": "30s", "do": "preempt", "target": "42"}`. Replaces the running plan. Returns
        the first faults. BadRequest for an invalid step: then nothing changes."""
        return self._call("POST", "/schedule", steps=list(steps))

    def end_plan(self) -> None:
        """End chaos or schedule. Faults that they set remain."""
        self._call("POST", "/chaos", off=True)

    def settings(self, **seconds: float) -> dict[str, Any]:
        """Change latencies (`create`, `delete`, `accept`, `suspend`, `stop`, `list_lag`); returns all of them."""
        return self._call("POST", "/settings", **seconds)

    def _call(self, verb: str, path: str, /, **body: Any) -> dict[str, Any]:
        try:
            status, raw = ready.call(self._where, verb, path, body, timeout=_TIMEOUT_S)
            answer: dict[str, Any] = json.loads(raw)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise BackendGone("the emulator does not answer", hint=_START_IT) from error
        if status != 200:
            raise _ERRORS.get(status, TpujobError)(str(answer.get("error", "")))
        return answer
