"""The client of a running emulator's control interface. Standard library only, for the command line's start time."""

from __future__ import annotations

import http.client
import json
from pathlib import Path
from typing import Any

from tpujob.emulator import ready
from tpujob.errors import (
    BackendGone,
    BadRequest,
    IllegalInState,
    NotFound,
    TpujobError,
)

_TIMEOUT_S = 10.0
_START_IT = "Start it with `tpujob up`."
_ERRORS: dict[int, type[TpujobError]] = {
    400: BadRequest,
    404: NotFound,
    409: IllegalInState,
}


class EmulatorClient:
    """Every method raises BackendGone when nothing answers, BadRequest, NotFound or IllegalInState when the emulator
    refuses. A `target` is a slice's name or a job's id; empty: the only slice that is ready."""

    def __init__(self, control: Path) -> None:
        """`control`: the socket of the emulator's control interface."""
        self._where = control

    @staticmethod
    def from_ready(file: Path) -> EmulatorClient:
        """The emulator that wrote this ready file. Raises BackendGone if there is no file."""
        try:
            return EmulatorClient(ready.read(file))
        except (OSError, ValueError) as error:
            raise BackendGone("the emulator is not running", hint=_START_IT) from error

    def status(self) -> dict[str, Any]:
        return self._call("GET", "/status")

    def do(self, command: str, **values: Any) -> dict[str, Any]:
        """One of the commands in `faults/commands.py`, or `chaos`, `schedule`, `end-plan` and `settings`, with the
        parameters of its signature."""
        return self._call("POST", f"/{command}", **values)

    def _call(self, verb: str, path: str, /, **body: Any) -> dict[str, Any]:
        try:
            status, raw = ready.call(self._where, verb, path, body, timeout=_TIMEOUT_S)
            answer: dict[str, Any] = json.loads(raw)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise BackendGone("the emulator does not answer", hint=_START_IT) from error
        if status != 200:
            raise _ERRORS.get(status, TpujobError)(str(answer.get("error", "")))
        return answer
