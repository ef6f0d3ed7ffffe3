"""What a training run says: events for tpujob from every host, and lines for a person from host 0."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict

from workloads.contract import Reporter
from workloads.frame.config import TrainConfig
from workloads.verdicts.blame import StepVerdict


class ProgressLog:
    """One method for each thing that a run can say. Lines are printed only where `speaks`."""

    def __init__(
        self,
        reporter: Reporter,
        config: TrainConfig,
        *,
        speaks: bool,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`clock` is in seconds."""
        self._clock = clock
        self._reporter = reporter
        self._config = config
        self._speaks = speaks

    def line(self, text: str) -> None:
        if self._speaks:
            sys.stdout.write(text + "\n")

    def phase(self, name: str) -> None:
        self._reporter.event("phase", name=name)

    def resumed(self, step: int) -> None:
        self._reporter.event("resume", step=step)
        self.line(f"going on from the checkpoint of step {step}")

    def damaged(self, step: int, what: str) -> None:
        """A checkpoint was found damaged, and is not gone on from."""
        self._reporter.event("damaged", step=step, message=what)
        self.line(f"not going on from the checkpoint of step {step}: {what}")

    def start_clock(self) -> None:
        """Call it when steps begin: the first step is timed from here."""
        self._last = self._line_at = self._clock()
        self._since_line = 0

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What happens within, between two steps, is no part of the time of either."""
        begun = self._clock()
        yield
        spent = self._clock() - begun
        self._last += spent
        self._line_at += spent

    def step(
        self, step: int, loss: float | None, gradient_norm: float | None, waited_ms: float
    ) -> None:
        """A step is over, for whose batch the training waited so long. None: a number that is not finite."""
        now = self._clock()
        ms = round((now - self._last) * 1000, 2)
        self._last = now
        self._since_line += 1
        self._reporter.event(
            "step",
            step=step,
            steps=self._config.steps,
            loss=loss,
            gradient_norm=gradient_norm,
            ms=ms,
            wait_ms=round(waited_ms, 3),
        )
        if step % self._config.log_every == 0 or loss is None:
            each = (now - self._line_at) / self._since_line
            shown = "nan" if loss is None else f"{loss:.4f}"
            self.line(
                f"step {step}/{self._config.steps}  loss {shown}  {each * 1000:.1f} ms/step  "
                f"{self._config.batch / each:,.0f} rows/s"
            )
            self._line_at, self._since_line = now, 0

    def committed(self, step: int) -> None:
        self._reporter.event("checkpoint", step=step)
        self.line(f"checkpoint of step {step} is committed")

    def verdict(self, step: int, verdict: StepVerdict) -> None:
        """Whose fault it is that step was not finite; every host says it, in `verdict.json`."""
        self._reporter.verdict(step=step, **asdict(verdict))
        self.line(f"step {step}: {verdict.text}")

    def compiled(self, counts: Mapping[str, int]) -> None:
        """How often the cache of compiled programs had what was asked for (`cache_stats.counts`)."""
        for name, count in counts.items():
            self._reporter.event("metric", name=name, value=count)

    def tested(self, step: int, found: Mapping[str, float]) -> None:
        """What a test has measured, by name; an accuracy is printed in percent."""
        for name, value in found.items():
            rounded = round(value, 6) if math.isfinite(value) else None
            self._reporter.event("metric", name=f"test_{name}", value=rounded, step=step)
        if not found:
            return
        shown = (
            f"{name} {100 * value:.2f} %" if name == "accuracy" else f"{name} {value:.4f}"
            for name, value in found.items()
        )
        self.line(f"step {step}: test {', '.join(shown)}")
