"""Arrays and sweeps, as one process knows them."""

import time
from dataclasses import replace

import pytest

from tests.support.stage import Stage
from tpujob.domain.codec import to_text
from tpujob.domain.model import State
from tpujob.engine.groups import Groups


def test_a_large_ended_group_is_read_fast(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    job = replace(stage.job(stage.create()), group="000001", state=State.SUCCEEDED)
    ended = [replace(job, id=f"{n + 2:06d}", index=n) for n in range(10_000)]
    monkeypatch.setattr(stage.store, "walk", lambda: iter(ended))
    began = time.process_time()
    assert Groups(stage.store, stage.clock).element("000001", 9_999) == "010001"
    assert time.process_time() - began < 1.5


def test_a_group_is_told_when_its_last_element_has_ended_or_was_removed(stage: Stage) -> None:
    job = replace(stage.job(stage.create()), group="000001")
    woken: list[str] = []
    groups = Groups(stage.store, stage.clock)
    groups.news = woken.append
    parts = [replace(job, id=f"{n + 2:06d}", index=n) for n in range(3)]
    for part in (*parts, replace(parts[0], state=State.SUCCEEDED), parts[0]):
        groups.note(part)
    groups.note(replace(parts[1], state=State.FAILED))
    groups.note(replace(parts[1], state=State.FAILED))
    groups.forget(parts[2].id)
    assert woken == [], "the first goes on again"
    groups.note(replace(parts[0], state=State.CANCELLED))
    assert woken == ["000001"]


@pytest.mark.parametrize("removed", [0, 1, 2])
def test_elements_that_were_stored_and_not_counted_are_counted_though_one_was_removed(
    stage: Stage, removed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process was killed between both writes; later times have more digits, which makes records longer."""
    group = stage.job(stage.create(array=3))
    first, again = Groups(stage.store, stage.clock), Groups(stage.store, stage.clock)
    assert first.make(group, 0, 1) == 1
    element = stage.job(first.element(group.id, 0) or "")
    monkeypatch.setattr("tpujob.engine.groups.BYTES", 2 * len(to_text(element)))
    assert first.make(group, 1, 2) == 2
    stage.store.remove(first.element(group.id, removed) or "", lease=None)
    stage.clock.sleep(0.123456)
    assert again.make(group, 1, 2) == 2
    assert len(stage.store.list()) == 3
