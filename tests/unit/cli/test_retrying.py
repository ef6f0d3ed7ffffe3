"""Commands whose backend is replaced, or stopped, while they wait."""

from pathlib import Path

import pytest

from tests.support.commands import Tpujob, withdraw
from tests.support.scripted import ScriptedJobs, job_view
from tpujob.api import JobsApi
from tpujob.errors import BackendGone, Transient
from tpujob.lib.tries import Backoff
from tpujob.wiring.retrying import RetryingClient

TIMEOUT, PAUSES = RetryingClient.timeout, RetryingClient.pauses


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(RetryingClient, "pauses", Backoff(0.01, 30.0))
    monkeypatch.setattr(RetryingClient, "timeout", 0.2)


def test_following_goes_on_when_the_backend_is_replaced(tpujob: Tpujob, api: ScriptedJobs) -> None:
    answers = iter([BackendGone("gone"), BackendGone("gone"), None, BackendGone("gone"), None])
    real = api.get

    def get(job: str) -> object:
        error = next(answers, None)
        if error:
            raise error
        return real(job)

    api.script = [job_view(), job_view(version=8), job_view(version=9, state="succeeded")]
    api.get = get  # type: ignore[assignment, method-assign]
    result = tpujob("wait", "42")
    assert "succeeded" in result.out
    assert "trying again" in result.err


def test_a_stopped_stack_is_not_started_unasked(tpujob: Tpujob, api: ScriptedJobs) -> None:
    def get(job: str) -> object:
        withdraw(tpujob.state, "backend")
        raise BackendGone("gone")

    api.get = get  # type: ignore[assignment, method-assign]
    result = tpujob("wait", "42", code=69)
    assert "starting the local stack" not in result.err
    assert list((tpujob.state / "run").glob("*.process")) == []


def test_a_change_is_never_repeated(tpujob: Tpujob, api: ScriptedJobs, job_file: Path) -> None:
    api.raises = BackendGone("gone")
    tpujob("cancel", "42", code=69)
    assert len(api.named("cancel")) == 1


def test_a_request_is_repeated_for_half_a_minute(api: ScriptedJobs) -> None:
    pauses: list[float] = []
    retrying = RetryingClient(api, lambda: None, clock=lambda: sum(pauses), sleep=pauses.append)
    retrying.timeout, retrying.pauses = TIMEOUT, PAUSES

    def fail(jobs: JobsApi) -> None:
        raise Transient("the store is busy")

    with pytest.raises(Transient):
        retrying.ask(fail)
    assert sum(pauses) == pytest.approx(30)


def test_slow_errors_are_not_retried_again_and_again(api: ScriptedJobs) -> None:
    """A request that fails after more than half a minute is not repeated."""
    asked: list[float] = []
    retrying = RetryingClient(api, lambda: None, clock=lambda: 31.0 * len(asked))

    def fail(jobs: JobsApi) -> None:
        asked.append(1)
        raise Transient("cannot read the log")

    with pytest.raises(Transient):
        retrying.ask(fail)
    assert len(asked) == 1


def test_a_failure_names_the_dead_process_of_the_stack(tpujob: Tpujob, api: ScriptedJobs) -> None:
    (tpujob.state / "run" / "farm.process").write_text('{"pid": 1, "start": "another boot/1"}')
    api.raises = Transient("cannot read the log")
    result = tpujob("cancel", "42", code=75)
    assert "the farm ended unexpectedly: `tpujob up` starts" in result.err
