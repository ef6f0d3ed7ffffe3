"""A client of the metadata server, which describes a VM to its own processes."""

from __future__ import annotations

import os
from typing import Optional

from tpujob.agent.base import parse_json
from tpujob.agent.http_client import HttpError, pieces, send
from tpujob.protocol import MAINTENANCE, PREEMPTED, MaintenanceDocument

MAX_VALUE = 256 * 1024  #: bytes of a value (documented)


class MetadataClient:
    """A client of this VM's metadata server."""

    def __init__(self) -> None:
        host = os.environ.get("GCE_METADATA_HOST") or "metadata.google.internal"
        self._base = "http://%s/computeMetadata/v1/instance/" % host

    def get(self, path: str) -> Optional[str]:
        """Return the value; empty: there is none. None: no answer, or one that is larger than any value."""
        headers = {"Metadata-Flavor": "Google"}
        value = b""
        try:
            with send(self._base + path, headers=headers, timeout=2, direct=True) as response:
                for piece in pieces(response, MAX_VALUE):
                    value += piece
                    if len(value) > MAX_VALUE:
                        return None
        except HttpError as error:
            return "" if error.status == 404 else None
        return value.decode("utf-8", "replace").strip()

    def notice(self) -> Optional[str]:
        """Return one of NOTICES, or None if there is no answer."""
        preempted = self.get("preempted")
        if preempted == "TRUE":
            return PREEMPTED
        event = self.get("maintenance-event")
        if preempted is None and event is None:
            return None
        return "" if event in ("NONE", "", None) else MAINTENANCE

    def upcoming(self) -> Optional[MaintenanceDocument]:
        """Return the maintenance that is announced for this host, or None.

        Google documents it for TPU VMs, a week ahead if scheduled. Without any, the server answers `{"error": ...}` or
        503. The server's names have `_`; documents of the API have the same names in camel case."""
        answer = parse_json((self.get("upcoming-maintenance?alt=json") or "").encode())

        def text(*names: str) -> str:
            values = (answer[name] for name in names if isinstance(answer.get(name), str))
            return str(next(values, ""))[:60]

        starts = text("window_start_time", "windowStartTime")
        if not starts:
            return None
        return {
            "starts": starts,
            "ends": text("window_end_time", "windowEndTime"),
            "latest": text("latest_window_start_time", "latestWindowStartTime"),
            "kind": text("type", "maintenanceType"),
            "status": text("maintenance_status", "maintenanceStatus"),
        }
