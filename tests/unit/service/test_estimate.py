"""Estimates of the service: an earlier run tells how long a job takes; what can be no amount is refused."""

from typing import Any

import pytest

from tests.support.stage import Stage
from tpujob.api import EstimateInputs
from tpujob.domain.spec import dump
from tpujob.errors import BadRequest, BadSpec


def test_an_earlier_run_tells_the_time_and_the_estimate_is_what_it_cost(stage: Stage) -> None:
    job_id = stage.started()
    stage.clock.sleep(3600)
    stage.succeed(job_id)
    spec = dump(stage.store.get(job_id).spec)
    estimate = stage.api.estimate(spec)
    assert (estimate["length_by"], estimate["name"]) == ("history", spec["name"])
    slices = [line for line in estimate["lines"] if line["kind"] == "slices"]
    listed = stage.api.cost()["total"]["list_micros"]
    assert [slice["list_micros"] for slice in slices] == [pytest.approx(listed, abs=1)]
    assert estimate["list_micros"] == sum(line["list_micros"] or 0 for line in estimate["lines"])
    assert stage.api.estimate(spec, {"hours": 2.0})["length_by"] == "stated"
    assert stage.api.estimate({**spec, "array": 3}).get("jobs") == 3


@pytest.mark.parametrize(
    "stated",
    [
        {"hours": -1},
        {"hours": True},
        {"hours": "3"},
        {"hours": float("nan")},
        {"hours": 10**400},
        {"hours": 1e13},
        {"steps": 1.5},
        {"quiet": 1},
        {"hourz": 1},
    ],
)
def test_what_can_be_no_amount_is_refused(stage: Stage, stated: Any) -> None:
    spec = {"name": "x", "tpu": {"type": "v4-16"}, "run": {"command": "true"}}
    with pytest.raises(BadRequest, match=next(iter(stated))):
        stage.api.estimate(spec, stated)


def test_what_can_be_no_job_is_refused(stage: Stage) -> None:
    stated: EstimateInputs = {"hours": 1.0}
    with pytest.raises(BadSpec, match="no such type"):
        stage.api.estimate(
            {"name": "x", "tpu": {"type": "v4-15"}, "run": {"command": "true"}}, stated
        )
