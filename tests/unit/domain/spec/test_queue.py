"""The keys of a job file that say when the job runs."""

import json

from tpujob.domain.spec import dump, parse
from tpujob.domain.spec.jobspec import load

HEAD = "name: eval\ntpu: {type: v4-8}\nrun: {command: python eval.py}\n"


def test_a_job_waits_for_others_for_a_time_and_in_a_band() -> None:
    spec = load(
        HEAD
        + """
after: [train, {job: "000012", on: end}, {job: sweep, each: true}]
priority: high
share: vision
start: held
not_before: 2026-12-01T09:00Z
time: 4h
max_time: 12h
""",
        "job.yaml",
    )
    first, second, third = spec.after
    assert (first.job, first.on, first.each) == ("train", "success", False)
    assert (second.job, second.on, third.each) == ("000012", "end", True)
    assert (spec.priority, spec.share, spec.start) == ("high", "vision", "held")
    assert (spec.not_before, spec.time, spec.max_time) == (1796115600.0, 4 * 3600, 12 * 3600)
    assert parse(json.loads(json.dumps(dump(spec)))) == spec
