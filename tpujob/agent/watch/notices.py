"""Notices that this host is about to be taken away, whether the program still saved a checkpoint; and maintenance that
is announced for later, which is only passed on."""

from __future__ import annotations

import threading
import time
from typing import Any, Optional

from tpujob.agent.metadata import MetadataClient
from tpujob.agent.upload import ProgressReader
from tpujob.protocol import PREEMPTED, MaintenanceDocument

#: seconds between two questions for announced maintenance, which comes hours to days ahead
UPCOMING_EVERY = 60.0


class Notices:
    """Asks the metadata server for notices, on a thread of its own. `newest` is one of NOTICES."""

    def __init__(self, metadata: MetadataClient, progress: ProgressReader) -> None:
        self._metadata, self._progress = metadata, progress
        self.newest = ""
        self.upcoming: Optional[MaintenanceDocument] = None  #: announced for later; no notice
        self._heard = 0.0  #: monotonic
        self._saved_before: Any = None  #: the step of the newest checkpoint then
        threading.Thread(target=self._watch, name="metadata", daemon=True).start()

    def ask(self) -> None:
        """Ask the metadata server once more, now."""
        self.newest = self.newest or self._metadata.notice() or ""

    def heard(self) -> None:
        """Note that the program gets the notice now."""
        if not self._heard:
            self._heard = time.monotonic()
            self._saved_before = self._progress.facts.get("checkpoint")

    def saved_in(self) -> Optional[float]:
        """Seconds from the first notice to now, if a checkpoint was committed in between; else None."""
        saved, before = self._progress.facts.get("checkpoint"), self._saved_before
        if not self._heard or saved is None or (before is not None and saved <= before):
            return None
        return round(time.monotonic() - self._heard, 1)

    def _watch(self) -> None:
        """Ask once a second while the server answers, rarely while it does not."""
        delay, due = 1.0, 0.0
        while self.newest != PREEMPTED:
            notice = self._metadata.notice()
            if notice is not None and time.monotonic() >= due:
                self.upcoming, due = self._metadata.upcoming(), time.monotonic() + UPCOMING_EVERY
            self.newest = notice or self.newest
            delay = min(delay * 2, 60) if notice is None else 1.0
            time.sleep(delay)
