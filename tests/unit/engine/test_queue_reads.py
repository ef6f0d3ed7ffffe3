"""The records that the queue has read, while reads of the store fail."""

import pytest

from tests.support.stage import Stage
from tpujob.errors import DamagedRecord, Transient


def test_a_job_that_could_not_be_read_is_known_as_soon_as_it_can_be_read(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if the store was away meanwhile."""
    job_id, queue = stage.create(), stage.new_backend().queue
    failures = [DamagedRecord("damaged"), Transient("away")]

    def peek(_: str) -> None:
        raise failures[0]

    with monkeypatch.context() as broken:
        broken.setattr(stage.store, "list", lambda **_: [])
        broken.setattr(stage.store, "damaged", lambda: [(job_id, "damaged")])
        broken.setattr(stage.store, "peek", peek)
        for _ in failures[:]:
            assert job_id not in queue.jobs()
            stage.clock.sleep(60)
            failures.reverse()
    assert job_id in queue.jobs()
