"""Reports of a training run: events for tpujob from every host, and lines for a person from host 0."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from statistics import fmean

from tpujob.contract import Reporter
from workloads.frame.config import TrainConfig
from workloads.verdicts.blame import StepVerdict


@dataclass
class ProgressLog:
    """Reports the events of a run. Lines are printed only if `speaks`."""

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

    def damaged(self, step: int, damage: str) -> None:
        """Report a damaged checkpoint, which the run does not resume from."""
        self.reporter.event("damaged", step=step, message=damage)
        self.line(f"not going on from the checkpoint of step {step}: {damage}")

    def start_clock(self) -> None:
        """Start timing the first step."""
        self._last = self.clock()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Exclude the time of the `with` block from the time of steps."""
        begun = self.clock()
        yield
        self._last += self.clock() - begun

    def step(self, step: int, loss: float, gradient_norm: float, waited_ms: float) -> None:
        """Report a finished step, whose batch was waited for during `waited_ms`."""
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
            loss=loss,
            gradient_norm=gradient_norm,
            ms=round(seconds * 1000, 2),
            wait_ms=round(waited_ms, 3),
            **rate,
        )
        if step % self.config.log_every == 0 or not math.isfinite(loss):
            mean = fmean(self.since_line)
            self.since_line.clear()
            self.line(
                f"step {step}/{self.config.steps}  loss {loss:.4f}  {mean * 1000:.1f} ms/step  "
                f"{self.config.batch / mean:,.0f} rows/s"
            )

    def committed(self, step: int) -> None:
        self.reporter.event("checkpoint", step=step)
        self.line(f"checkpoint of step {step} is committed")

    def verdict(self, step: int, verdict: StepVerdict) -> None:
        """Report the verdict on a step that was not finite, on every host, in `verdict.json`."""
        self.reporter.verdict(step=step, **asdict(verdict))
        self.line(f"step {step}: {verdict.text}")

    def compiled(self, counts: Mapping[str, int]) -> None:
        """Report hits and misses of the cache of compiled programs (`cache_stats.counts`)."""
        for name, count in counts.items():
            self.reporter.event("metric", name=name, value=count)

    def tested(self, step: int, results: Mapping[str, float]) -> None:
        """Report the results of a test by name; an accuracy is printed in percent."""
        for name, value in results.items():
            self.reporter.event("metric", name=f"test_{name}", value=round(value, 6), step=step)
        shown = (
            f"{name} {100 * value:.2f} %" if name == "accuracy" else f"{name} {value:.4f}"
            for name, value in results.items()
        )
        if results:
            self.line(f"step {step}: test {', '.join(shown)}")
