"""The bar of bytes of a copy, on standard error: bytes a second and the time left. Silent without a terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.progress import Progress


class ProgressBar:
    """Implements `data.sync.Progress`; any thread may tell it. Shows nothing unless standard error is a terminal."""

    def __init__(self, *, shown: bool) -> None:
        self._planned = 0
        self._bar: Progress | None = _bar() if shown and sys.stderr.isatty() else None
        self._task = self._bar.add_task("copying", total=0) if self._bar else None

    def __enter__(self) -> ProgressBar:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._bar:
            self._bar.stop()

    def planned(self, size: int) -> None:
        """So many more bytes are to be copied, or are there already."""
        if self._bar and self._task is not None:
            self._planned += size
            self._bar.update(self._task, total=self._planned)

    def moved(self, size: int) -> None:
        if self._bar and self._task is not None:
            self._bar.update(self._task, advance=size)


def _bar() -> Progress:
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (BarColumn(), DownloadColumn(True), TransferSpeedColumn(), TimeRemainingColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True)
