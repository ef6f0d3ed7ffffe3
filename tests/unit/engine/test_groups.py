"""Arrays and sweeps, as one process knows them."""

import time
from dataclasses import replace

import pytest

from tests.support.stage import Stage
from tpujob.domain.model import State
from tpujob.engine.groups import Groups


def test_a_large_group_that_has_ended_is_read_at_once(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = replace(stage.job(stage.create()), group="000001", state=State.SUCCEEDED)
    ended = [replace(job, id=f"{n + 2:06d}", index=n) for n in range(10_000)]
    monkeypatch.setattr(stage.store, "walk", lambda: iter(ended))
    began = time.process_time()
    assert Groups(stage.store, stage.clock).element("000001", 9_999) == "010001"
    assert time.process_time() - began < 1.5


def test_a_group_is_told_when_its_last_element_has_ended_or_was_removed(stage: Stage) -> None:
    job = replace(stage.job(stage.create()), group="000001")
    told: list[str] = []
    groups = Groups(stage.store, stage.clock)
    groups.news = told.append
    parts = [replace(job, id=f"{n + 2:06d}", index=n) for n in range(3)]
    for one in (*parts, replace(parts[0], state=State.SUCCEEDED), parts[0]):
        groups.note(one)
    groups.note(replace(parts[1], state=State.FAILED))
    groups.note(replace(parts[1], state=State.FAILED))
    groups.forget(parts[2].id)
    assert told == [], "the first goes on again"
    groups.note(replace(parts[0], state=State.CANCELLED))
    assert told == ["000001"]
