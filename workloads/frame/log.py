"""What a training run says: events for tpujob from every host, and lines for a person from host 0."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from statistics import fmean

from workloads.contract import Reporter
from workloads.frame.config import TrainConfig
from workloads.verdicts.blame import StepVerdict


@dataclass
class ProgressLog:
    """One method for each thing that a run can say. Lines are printed only where `speaks`."""

    reporter: Reporter
    config: TrainConfig
    speaks: bool
    clock: Callable[[], float] = time.perf_counter  #: in seconds
    tokens: int = 0  #: of one step, on all hosts; 0: its rows have none
    least_seconds: float = 0.0  #: of a step at the peak of all devices; 0: not known
    since_line: list[float] = field(default_factory=list[float])  #: seconds of each step

    def line(self, text: str) -> None:
        if self.speaks:
            print(text, flush=True)

    def phase(self, name: str) -> None:
        self.reporter.event("phase", name=name)

    def resumed(self, step: int) -> None:
        self.reporter.event("resume", step=step)
        self.line(f"going on from the checkpoint of step {step}")

    def damaged(self, step: int, what: str) -> None:
        """A checkpoint was found damaged, and is not gone on from."""
        self.reporter.event("damaged", step=step, message=what)
        self.line(f"not going on from the checkpoint of step {step}: {what}")

    def start_clock(self) -> None:
        """Call it when steps begin: the first step is timed from here."""
        self._last = self.clock()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What happens within, between two steps, is no part of the time of either."""
        begun = self.clock()
        yield
        self._last += self.clock() - begun

    def step(self, step: int, loss: float, gradient_norm: float, waited_ms: float) -> None:
        """A step is over, for whose batch the training waited so long."""
        now = self.clock()
        seconds, self._last = now - self._last, now
        self.since_line.append(seconds)
        rate = {"tokens_per_second": round(self.tokens / seconds, 1)} if self.tokens else {}
        if self.least_seconds:
            rate["mfu"] = round(self.least_seconds / seconds, 4)
        self.reporter.event(
            "step",
            step=step,
            steps=self.config.steps,
            loss=_finite(loss),
            gradient_norm=_finite(gradient_norm),
            ms=round(seconds * 1000, 2),
            wait_ms=round(waited_ms, 3),
            **rate,
        )
        if step % self.config.log_every == 0 or not math.isfinite(loss):
            each = fmean(self.since_line)
            self.since_line.clear()
            self.line(
                f"step {step}/{self.config.steps}  loss {loss:.4f}  {each * 1000:.1f} ms/step  "
                f"{self.config.batch / each:,.0f} rows/s"
            )

    def committed(self, step: int) -> None:
        self.reporter.event("checkpoint", step=step)
        self.line(f"checkpoint of step {step} is committed")

    def verdict(self, step: int, verdict: StepVerdict) -> None:
        """Whose fault it is that step was not finite; every host says it, in `verdict.json`."""
        self.reporter.verdict(step=step, **asdict(verdict))
        self.line(f"step {step}: {verdict.text}")

    def compiled(self, counts: Mapping[str, int]) -> None:
        """How often the cache of compiled programs had what was asked for (`cache_stats.counts`)."""
        for name, count in counts.items():
            self.reporter.event("metric", name=name, value=count)

    def tested(self, step: int, found: Mapping[str, float]) -> None:
        """What a test has measured, by name; an accuracy is printed in percent."""
        for name, value in found.items():
            rounded = _finite(round(value, 6))
            self.reporter.event("metric", name=f"test_{name}", value=rounded, step=step)
        shown = (
            f"{name} {100 * value:.2f} %" if name == "accuracy" else f"{name} {value:.4f}"
            for name, value in found.items()
        )
        if found:
            self.line(f"step {step}: test {', '.join(shown)}")


def _finite(number: float) -> float | None:
    """JSON has no other numbers."""
    return number if math.isfinite(number) else None
