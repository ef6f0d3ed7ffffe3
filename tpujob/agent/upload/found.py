"""The progress of a program that reports none: what was found in its output and in its files of scalars. It is shown,
and decides nothing.
"""

from __future__ import annotations

import re
import time
from typing import Any, Dict, List, Optional, Tuple

from tpujob.agent.scalars import Scalars
from tpujob.agent.upload.progress import ProgressReader, add_metric, nonfinite_word, number
from tpujob.protocol.report import FoundDocument

#: `loss`, `train/loss`, `train_loss`, `Loss/train`, `learning/total_loss`: the loss of the training among scalars
_LOSS = re.compile(
    r"^(?:(?:train(?:ing)?|learning|epoch|batch)[/_ .])?(?:total[_ ])?loss(?:[/_ .](?:train(?:ing)?|step))?$",
    re.IGNORECASE,
)


class FoundReader:
    """What was found, in the facts and curves of `progress`. Curves are of the files, once there are any: they have
    the step of each value, and all since the first."""

    def __init__(self, progress: ProgressReader) -> None:
        self._progress = progress
        self._document: Optional[FoundDocument] = None
        self._step: Optional[int] = None  #: the greatest in a file
        self._loss: Optional[float] = None  #: the newest in a file
        self._metrics: Dict[str, Any] = {}  #: the newest of other names
        self._from: Optional[Tuple[int, float]] = None  #: the first step, and when it was made

    def read(self, output: Optional[FoundDocument], rows: List[Scalars]) -> None:
        """Take what was found in the output so far, and the new scalars of files."""
        for row in rows:
            self._read_row(row)
        empty = FoundDocument(step=None, steps=None, loss=None, step_s=None, metrics={})
        found = output or empty
        now = time.time()
        if found["step"] is None:
            step, at = self._step, rows[-1].at if rows else now
        else:
            step, at = int(found["step"]), now
        loss = self._loss if found["loss"] is None else found["loss"]
        if step is None and loss is None:
            return
        before = self._document or empty
        new = step is not None and step != before["step"]
        self._document = FoundDocument(
            step=step,
            steps=found["steps"],
            loss=nonfinite_word(loss) or number(loss),
            step_s=self._pace(step, at) if step is not None and new else before["step_s"],
            metrics=dict(self._metrics),
        )
        self._progress.facts["found"] = self._document
        if self._step is None:
            if new:
                self._progress.series.step(step, now, {})
            if loss is not None and self._document != before:
                self._progress.series.metric("loss", loss)

    def end(self) -> None:
        """Show nothing as found any more."""
        self._progress.facts["found"] = None

    def _read_row(self, row: Scalars) -> None:
        series = self._progress.series
        if self._step is None:
            series.clear()
        if self._step is None or row.step > self._step:
            self._step = row.step
            series.step(row.step, row.at, row.values)
        else:
            for name, value in row.values.items():
                series.metric(name, value)
        for name, value in row.values.items():
            if _LOSS.match(name):
                self._loss = value
            else:
                add_metric(self._metrics, name, value)

    def _pace(self, step: int, at: float) -> Optional[float]:
        """Return the mean seconds of a step since the first one that was found; None: too few were. Steps that begin
        anew are a first one."""
        if self._from is None or step < self._from[0]:
            self._from = step, at
        first, since = self._from
        return (at - since) / (step - first) if step > first and at > since else None
