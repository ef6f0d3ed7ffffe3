"""A backend that is killed with -9 while a receiver answers: the next one delivers the same message, by its id."""

from __future__ import annotations

import subprocess
import sys
import threading
import time
from concurrent.futures import wait
from pathlib import Path

from standardwebhooks import Webhook as Reference

from tests.flow.stack.killed import KEY, notifier
from tests.support.paths import ROOT
from tests.support.stores import a_job
from tests.support.waiting import until
from tests.unit.notify.receivers import web
from tpujob.adapters.calling import SystemClock
from tpujob.adapters.sqlite import SqliteStore
from tpujob.domain.events import Event, EventKind, Finished
from tpujob.domain.lifecycle import apply, event
from tpujob.domain.model import Cause, State
from tpujob.domain.notifications import delivery


class Later(SystemClock):
    """A minute ahead: the claim of the process that was killed has ended."""

    def now(self) -> float:
        return super().now() + delivery.CLAIM + 1


def test_what_was_delivered_and_not_recorded_is_delivered_again_with_its_id(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "jobs.db")
    with web() as receiver:
        receiver.release = threading.Event()
        command = [sys.executable, "-m", "tests.flow.stack.killed", str(tmp_path), receiver.url]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
        try:
            assert process.stdout
            assert process.stdout.readline() == "ready\n"
            until(lambda: store.outbox.position() is not None, "the outbox is read")
            _fail_a_job(store)
            until(lambda: receiver.got, "the channel is told")
        finally:
            process.kill()
            process.communicate()
        assert store.outbox.messages(limit=9)[0].state == "waiting"
        receiver.release.set()
        second = notifier(store, receiver.url, Later(), "second")
        begun, _ = second.step()
        wait(begun, timeout=30)
        first, again = receiver.got
        (message,) = store.outbox.messages(limit=9)
    store.close()
    assert first.headers["webhook-id"] == again.headers["webhook-id"] == message.id
    assert first.body == again.body
    assert Reference(KEY).verify(again.body, again.headers)["type"] == "job.failed"
    assert message.state == "sent"


def _fail_a_job(store: SqliteStore) -> None:
    now = time.time()
    job = store.create(
        a_job(created_at=now, state_since=now), Event(EventKind.CREATED, now, State.QUEUED, "made")
    )
    failed = event(job, EventKind.FAILED, now, "it crashed", Finished(Cause.CRASH))
    store.commit(apply(job, failed), failed, expected_version=1, op_id="x", lease=None)
