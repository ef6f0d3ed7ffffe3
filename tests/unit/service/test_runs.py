"""Curves of several jobs in one answer: a sweep by its elements, with what differs, for everybody who sees jobs."""

from dataclasses import replace

import pytest

from tests.flow.page import sweeps
from tests.support.callers import ADA, caller
from tests.support.stage import SPEC, Stage
from tpujob.domain.access import Role
from tpujob.errors import BadRequest, Forbidden, NotFound
from tpujob.service.runs import MAX_RUNS

BOB = caller("bob")


def test_a_sweep_is_its_elements_each_named_by_its_parameters(stage: Stage) -> None:
    group, elements = sweeps.make(stage, ADA)
    for n, element in enumerate(elements[:3]):
        sweeps.train(stage, element, 100 + n, checkpoint=60)
    stage.cloud.preempt(stage.job(elements[1]).slices[-1].name)
    stage.running(elements[1], 2)
    sweeps.train(stage, elements[1], 120, first=61, resumed_from=60)
    view = stage.api.curves([group])
    assert [run["id"] for run in view["runs"]] == elements
    assert view["keys"] == ["lr", "seed"]
    assert view["runs"][1]["label"] == "lr=0.0001 seed=2"
    assert view["runs"][1]["values"] == {"lr": "0.0001", "seed": "2"}
    assert view["runs"][1]["metrics"].keys() == {"loss", "accuracy"}
    assert [chart["name"] for chart in view["charts"]][:2] == ["loss", "tokens_per_second"]
    drawn = [(c["job"], c["attempt"], c["kept"], c["cause"]) for c in view["charts"][0]["curves"]]
    first, second, third = elements[:3]
    assert drawn == [
        (first, 1, None, None),
        (second, 1, 60, "PREEMPTED"),
        (second, 2, None, None),
        (third, 1, None, None),
    ]
    assert view["charts"][0]["curves"][1]["checkpoint"] == 60
    one = stage.api.curves([second])["charts"][0]["curves"]
    assert one == stage.api.metrics(second)["charts"][0]["curves"], "the same as of one job"


def test_everybody_sees_the_curves_and_only_owner_and_admins_what_was_varied(stage: Stage) -> None:
    group, elements = sweeps.make(stage, BOB)
    sweeps.train(stage, elements[0], 50)
    for user, sees in ((BOB, True), (ADA, True), (caller("eve"), False)):
        view = stage.api.acting_for(user).curves([group])
        assert view["charts"], user
        assert ("lr" in view["keys"]) is sees, user
        assert ("lr=" in view["runs"][0]["label"]) is sees, user
    mine = stage.api.acting_for(caller("eve")).create({**SPEC, "name": "own"})["id"]
    view = stage.api.acting_for(caller("eve")).curves([mine, elements[0]])
    assert "lr" not in view["runs"][1]["values"]
    with pytest.raises(Forbidden):
        stage.api.acting_for(replace(BOB, role=None)).curves([group])
    viewer = stage.api.acting_for(replace(caller("eve"), role=Role.VIEWER))
    assert len(viewer.curves([group])["runs"]) == len(elements)


def test_what_cannot_be_shown_is_said(stage: Stage) -> None:
    with pytest.raises(BadRequest, match="no job was named"):
        stage.api.curves([])
    with pytest.raises(NotFound, match="no job 000099"):
        stage.api.curves(["99"])
    group = stage.create(name="wide", array=MAX_RUNS + 5)
    stage.step(group)
    view = stage.api.curves([group])
    assert (len(view["runs"]), view["left_out"]) == (MAX_RUNS, 5)
    assert "no program has run yet" in view["why"]
    job = stage.started()
    sweeps.train(stage, job, 10)
    stage.faults.broken.add("get")
    view = stage.api.curves([job])
    assert (view["charts"], view["unread"]) == ([], [job])
    assert "they cannot be read from the bucket" in view["why"]
