"""Background loops continue after an unexpected error, and the health of the backend names it."""

import logging
import threading
import time
from pathlib import Path

import pytest

from tests.support.stage import Stage
from tpujob.engine import Pulse
from tpujob.lib import threads
from tpujob.lib.threads import LoopFailure, loop_failures, start_loop
from tpujob.ports import Store
from tpujob.service.backend.status import Look, ProcessFacts, troubles
from tpujob.service.job_index.changes import Changes

PULSE = Pulse(None, None, 0.0, 0, 0, 0.0)


@pytest.fixture(autouse=True)
def no_earlier_failures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_failures", {})


def test_a_loop_is_entered_again_after_an_error_until_it_returns(
    caplog: pytest.LogCaptureFixture,
) -> None:
    entered: list[int] = []

    def run() -> None:
        entered.append(len(entered))
        if len(entered) < 4:
            raise KeyError("a bug")

    began = time.time()
    with caplog.at_level(logging.ERROR):
        start_loop("worker", run, first_pause=0.0).join(30)
    assert entered == [0, 1, 2, 3]
    failure = loop_failures(began - 1)[0]
    assert (failure.name, failure.errors, failure.text) == ("worker", 3, "KeyError('a bug')")
    assert loop_failures(time.time() + 60) == []
    assert "Traceback" in caplog.text, "the log has the place of the bug"


def test_a_listener_of_changes_outlives_an_error_in_decoding(tmp_path: Path) -> None:
    stage = Stage(tmp_path)
    failed = threading.Event()

    class FailsOnce:
        def newest(self) -> int:
            return stage.store.newest()

        def changes(self, after: int) -> tuple[int, list[str]]:
            if not failed.is_set():
                failed.set()
                raise KeyError("a bug in decoding, once")
            return after + 1, ["000001"]

    store: Store = FailsOnce()  # pyright: ignore[reportAssignmentType] the part that is read
    changes = Changes(store, interval=0.01)
    assert changes.wait("000001", 0, timeout=60) > 0
    assert failed.is_set()
    assert [failure.name for failure in loop_failures(0)] == ["watch"]


def test_health_names_the_loop_that_failed() -> None:
    assert [*troubles(ProcessFacts(), Look(1000.0, PULSE, read_s=0.0))] == []
    failure = LoopFailure("watch", 3, 988.0, "KeyError('x')")
    look = Look(1000.0, PULSE, read_s=0.0, failures=[failure])
    (trouble,) = troubles(ProcessFacts(), look)
    assert trouble["text"] == (
        "the background loop 'watch' failed 3 times, last 12 s ago: KeyError('x')"
    )
