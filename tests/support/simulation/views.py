"""The views that users read of a job, compared with the bucket's checkpoints, the hosts' programs, and the ledger."""

import math
from bisect import bisect_left
from collections.abc import Sequence

from tests.support.simulation.checkpoints import judged
from tests.support.simulation.programs import Run
from tests.support.simulation.sim import Broken
from tests.support.simulation.world import World
from tpujob.api import AttemptView, JobView
from tpujob.domain.model import Attempt, Job, Outcome
from tpujob.domain.money.ledger import covered
from tpujob.domain.money.report import report
from tpujob.domain.progress import began_from
from tpujob.protocol import paths
from tpujob.service.views import job_view

#: seconds by which the clocks of hosts, backends and the store differ, and between two looks at a host
CLOCKS = 30.0


#: seconds within which a report is read
LOOKS = 60.0


class Views:
    """I17: each fact of a job's view is true."""

    def __init__(self, world: World, broken: Broken) -> None:
        self._world, self._broken = world, broken

    def check(self, job: Job) -> None:
        now = self._world.sim.now
        view = job_view(job, now=now)
        try:
            self._checkpoint(job, view)
            self._money(job, view, now)
            for attempt, shown in zip(job.attempts, view["attempts"], strict=True):
                run = self._world.run_of(job.id, attempt)
                if run is not None:
                    _ran(attempt, run)
                    _succeeded(attempt, run, self._world.bucket.lists)
                    _steps(attempt, shown, run, now)
                    self._redone(job, attempt, shown)
        except AssertionError as error:
            self._broken("I17", job.id, str(error).partition("\n")[0])

    def _checkpoint(self, job: Job, view: JobView) -> None:
        """Check that the checkpoint shown for a resume is in the bucket, and that no verdict is against it."""
        step, saved = view["checkpoint"], self._world.saved.get(job.id, ())
        matches = [c for c in saved if c.step == step]
        assert step is None or matches, f"shows checkpoint {step}, which is not in the bucket"
        for attempt, verdict in judged(job):
            if (bad := verdict.step) is None:
                continue
            number, run = attempt.number, self._world.run_of(job.id, attempt)
            if step is not None and matches[-1].attempt == number and not matches[-1].good:
                assert step < bad, f"shows checkpoint {step}; attempt {number} broke at {bad}"
            if attempt is job.attempt and run and run.work.contract:  # its report names both steps
                # where every host lists what it has saved, an agent that died lists nothing later
                every = run.work.lists and not run.work.one_saves
                known = min(p.wrote for p in run.programs.values()) if every else math.inf
                latest = min(bad - 1, run.step(known))
                good = [c.step for c in saved if c.attempt == number and c.step <= latest]
                assert max(good, default=0) <= (step or 0), (
                    f"shows checkpoint {step}; {good[-1]} was saved before step {bad} broke"
                )

    def _money(self, job: Job, view: JobView, now: float) -> None:
        """Check that the dollars of the job's page equal the ledger's."""
        cost = report([job], now, "job", covered([job])).total.list / 1e6
        shown = view["usd_spent"]
        assert abs(cost - shown) < 1e-6, f"shows ${shown:.6f}; the ledger has ${cost:.6f}"
        slices = sum(slice_["usd"] for slice_ in view["slices"])
        assert slices <= shown + 1e-6, f"its slices cost ${slices:.6f}, and it ${shown:.6f}"

    def _redone(self, job: Job, attempt: Attempt, shown: AttemptView) -> None:
        """Check the repeated steps of an attempt, once a later attempt is known to have begun."""
        begun = [a for a in job.attempts[attempt.number :] if began_from(a) is not None]
        later = [self._world.run_of(job.id, a) for a in begun]
        began = [run.resumed for run in later if run and run.resumed < run.steps]
        if attempt.ended_at is None or not shown["redone"] or not began:
            return
        run = self._world.run_of(job.id, attempt)
        assert run is not None
        made_again = run.step(run.over()) - max(run.resumed, min(began))
        assert shown["redone"] <= max(0, made_again), (
            f"{shown['redone']} steps of attempt {attempt.number} are made again; it was {made_again}"
        )


def _succeeded(attempt: Attempt, run: Run, lists: Sequence[tuple[float, str]]) -> None:
    """Assert that programs that have all exited with 0 and reported it have succeeded, unless reports could not be
    listed from then on until the slice was gone."""
    programs = run.programs.values()
    if (
        attempt.ended_at is None
        or attempt.outcome is Outcome.SUCCEEDED
        or len(programs) < run.hosts
    ):
        return
    # a program that ends with 0 as its slice is preempted has saved, and is not done
    plain = all(p.exit_code == 0 and not p.hidden and p.noticed_at > p.exit_at for p in programs)
    heard = plain and all(p.wrote >= p.exit_at for p in programs)
    if not heard:
        return
    last = max(p.wrote for p in programs)
    # what was read earlier may have been for another job, or by a backend that has stood still or ended since
    since = max(last, attempt.ended_at - 2 * LOOKS) + LOOKS
    begin, end = (bisect_left(lists, (at, "")) for at in (since, attempt.ended_at))
    root = paths.reports_root(run.workdir)
    seen = sum(prefix == root for _, prefix in lists[begin:end])
    assert seen < 2, (
        f"attempt {attempt.number} ended {attempt.cause}; every host had exited with 0, and reported "
        f"that {attempt.ended_at - last:.0f} s before"
    )


def _ran(attempt: Attempt, run: Run) -> None:
    """Assert that the view says "running" from when the last host ran, and never if no program was started."""
    began = max((p.running_at for p in run.programs.values()), default=math.inf)
    if attempt.running_at is not None:
        first = min(p.running_at for p in run.programs.values())
        # a look may take as long, and what it finds counts from its begin
        assert first - CLOCKS - LOOKS <= attempt.running_at, (
            f"attempt {attempt.number} runs since {first - attempt.running_at:.0f} s before its program"
        )
    elif attempt.ended_at is not None and attempt.progress.step is not None:
        raise AssertionError(
            f"attempt {attempt.number} made step {attempt.progress.step} and has not run; "
            f"its program began {attempt.ended_at - began:.0f} s before its end"
        )


def _steps(attempt: Attempt, shown: AttemptView, run: Run, now: float) -> None:
    """Check that each shown step was made, and that an attempt resumes where its program did."""
    number, step = attempt.number, shown["step"]
    if step is not None:
        reached = max(run.step(min(now, run.over())), run.resumed)
        assert step <= reached, f"attempt {number} shows step {step} of {reached}"
        assert step >= run.resumed, f"attempt {number} shows step {step}, began after {run.resumed}"
    if shown["resumed_from"] is not None:
        assert shown["resumed_from"] == run.resumed, (
            f"attempt {number} shows that it went on from {shown['resumed_from']}, not {run.resumed}"
        )
    if attempt.outcome is Outcome.SUCCEEDED:
        assert step is None or step >= run.steps or not run.work.contract, (
            f"attempt {number} succeeded and shows step {step} of {run.steps}"
        )
