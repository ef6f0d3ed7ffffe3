"""What the main thread sleeps on."""

from __future__ import annotations

import contextlib
import os
import select
import signal


class Wake:
    """Waits until something happens: a signal, the end of a child, a call of `up`."""

    def __init__(self) -> None:
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)

    def up(self) -> None:
        """End a wait, from any thread."""
        with contextlib.suppress(OSError):
            os.write(self._writer, b".")

    def wait(self, seconds: float) -> None:
        if select.select([self._reader], [], [], seconds)[0]:
            with contextlib.suppress(OSError):
                os.read(self._reader, 4096)
