"""Keep what the first jobs of each zone met and cost, a line of JSON for each: tests estimate them without the
simulation. `python -m tests.bench.estimator --seed 7 --keep` writes the file.
"""

import json
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path

from tests.bench.estimator.lab import Trial, estimated, priced
from tpujob.domain.money import ledger
from tpujob.domain.money.durations import Stay
from tpujob.domain.money.samples import SamplePlace, SliceSample, history

FILE = Path(__file__).with_name("first_jobs.jsonl")
JOBS = 5  #: of each zone


def keep(trials: Sequence[Trial]) -> None:
    first = [_kept(trial) for trial in trials if trial.number < JOBS]
    FILE.write_text("".join(json.dumps(job) + "\n" for job in first))


def _kept(trial: Trial) -> dict[str, object]:
    return {
        "zone": trial.zone,
        "hours": trial.hours,
        "paid": trial.paid,
        "rate": ledger.rate(trial.job.slices[0]),
        "met": history([trial.job], trial.job.finished_at or 0.0),
    }


def estimates() -> Iterator[tuple[int, tuple[int, ...]]]:
    """Yield what each job cost, and its present estimate in the order of a `Range`."""
    jobs = map(json.loads, FILE.read_text().splitlines())
    for _, some in groupby(jobs, itemgetter("zone")):
        history = list[SliceSample]()
        for job in some:
            yield job["paid"], priced(job["rate"], estimated(job["hours"], history))
            history += [_samples(*facts) for facts in job["met"]]


def _samples(place: list, program: str, later: bool, *rest: object) -> SliceSample:
    wait, life, setup, lost, release = rest
    stays = (None if facts is None else Stay(*facts) for facts in (wait, life, setup))
    return SliceSample(
        SamplePlace(*place), program, later, *stays, lost, release and Stay(*release)
    )
