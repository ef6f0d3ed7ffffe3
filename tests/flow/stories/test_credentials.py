"""Credentials that expire in mid-job: nothing is seen, nothing is deleted, nothing is lost."""

from typing import Any

import pytest

from tests.support.stage import Stage
from tpujob.domain.model import State
from tpujob.domain.observations import Unknown
from tpujob.errors import Refused, Transient

EXPIRED = "Token has been expired or revoked (run `gcloud auth application-default login`)"


def test_a_job_runs_on_while_polls_fail(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    job_id = stage.create()
    before = stage.running(job_id)

    def refused(*_: Any, **__: Any) -> Any:
        raise Refused(EXPIRED, cause="PERMISSION")

    def transient(*_: Any, **__: Any) -> Any:
        raise Transient(EXPIRED)

    with monkeypatch.context() as patch:
        for name in ("list", "get", "put", "clock"):
            patch.setattr(stage.bucket, name, refused)
        patch.setattr(stage.cloud, "look", lambda slice, timeout: Unknown(EXPIRED))
        for name in ("create", "delete", "list_all"):
            patch.setattr(stage.cloud, name, transient)
        for _ in range(40):
            stage.step(job_id)
            stage.clock.sleep(60)
        with pytest.raises(Transient):
            stage.sweep("us-central2-b")
        view = stage.api.get(job_id)
        assert "gcloud auth application-default login" in view["trouble"]
        assert stage.job(job_id).attempt == before.attempt, "its attempt goes on"
    assert list(stage.cloud.machines) == ["tj-000001-1"]
    stage.finish(job_id, 0, 0)
    done = stage.until(job_id, State.SUCCEEDED)
    assert len(done.attempts) == 1
