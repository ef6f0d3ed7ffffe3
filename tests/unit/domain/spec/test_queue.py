"""The keys of a job file that say when it runs."""

import json

import pytest

from tpujob.domain.spec import dump, parse
from tpujob.domain.spec.jobspec import load
from tpujob.errors import BadSpec

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


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("after: 7", "after: must be a job or a list of jobs, not the number 7"),
        ("after: [a, {job: a, on: end}]", "after: names a twice"),
        (
            "after: {job: a, on: done}",
            "done is not a condition; allowed: success, end, failure, start",
        ),
        ("after: {on: end}", "job"),
        ("priority: urgent", "urgent is not a priority; allowed: high, normal, low"),
        ("start: later", "later is not a way to start; allowed: now, held"),
        ("not_before: 2026-12-01T09:00", "2026-12-01T09:00 has none"),
        ("not_before: tomorrow", "must be a time with its zone, such as 2026-12-01T09:00Z"),
        ("share: Vision", "must be the name of a share"),
        ("time: 4", "must be a time with its unit"),
    ],
)
def test_a_wrong_value_names_its_line_and_what_is_allowed(line: str, message: str) -> None:
    with pytest.raises(BadSpec) as raised:
        load(HEAD + line, "job.yaml")
    assert "job.yaml:4" in str(raised.value)
    assert message in str(raised.value)
