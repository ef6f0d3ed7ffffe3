"""Notes and tags: what people write about their jobs, at any time, and find again."""

import pytest

from tests.support.callers import ADA, caller
from tests.support.stage import SPEC, Stage
from tpujob.api import JobsApi, ListQuery
from tpujob.domain.annotations import MAX_NOTE, MAX_TAGS
from tpujob.domain.events import EventKind
from tpujob.domain.model import State
from tpujob.errors import BadRequest, Forbidden

EVE = caller("eve")


@pytest.fixture
def ada(stage: Stage) -> JobsApi:
    return stage.api.acting_for(ADA)


def submit(api: JobsApi, name: str) -> str:
    return api.create({**SPEC, "name": name})["id"]


def found(api: JobsApi, query: ListQuery) -> list[str]:
    return [row["name"] for row in api.list(query)["rows"]]


def test_a_job_is_tagged_and_noted_and_found_by_both(ada: JobsApi) -> None:
    first, second = submit(ada, "first"), submit(ada, "second")
    ada.annotate(first, note="the lr of the paper", add=["paper", "baseline"])
    ada.annotate(second, add=["new"])

    view = ada.get(first)
    assert (view.get("note"), view.get("tags")) == ("the lr of the paper", ["baseline", "paper"])
    assert found(ada, {"tags": ["baseline"]}) == ["first"]
    assert found(ada, {"tags": ["baseline", "new"]}) == ["second", "first"], "one of them is enough"
    assert found(ada, {"text": "of the PAPER"}) == ["first"]
    assert found(ada, {"text": "base"}) == ["first"]
    assert found(ada, {"tags": ["base"]}) == [], "a tag is a whole word"

    ada.annotate(first, note="", remove=["paper", "never-had"])
    view = ada.get(first)
    assert (view.get("note"), view.get("tags")) == ("", ["baseline"])
    assert found(ada, {"text": "of the paper"}) == []


def test_each_change_is_an_event_and_the_same_again_is_none(stage: Stage, ada: JobsApi) -> None:
    job = submit(ada, "first")
    why = ada.get(job)["message"]
    ada.annotate(job, note="a", add=["x"])
    ada.annotate(job, note="a", add=["x"])
    ada.annotate(job, remove=["x"])
    events = [e for e in stage.store.events(job) if e.kind is EventKind.ANNOTATED]
    assert [(e.text, e.by) for e in events] == [
        ("tagged x; noted: a", ADA.name),
        ("not tagged x any more", ADA.name),
    ]
    assert ada.get(job)["message"] == why, "a note is not why the job is in its state"


def test_a_job_that_has_ended_is_noted_and_stays_ended(stage: Stage, ada: JobsApi) -> None:
    job = submit(ada, "first")
    ada.cancel(job)
    ended = stage.until(job, lambda job: job.state.final)
    ada.annotate(job, note="a typo in the config")
    after = stage.job(job)
    assert (after.state, after.finished_at) == (State.CANCELLED, ended.finished_at)
    assert found(ada, {"text": "typo"}) == ["first"]


def test_only_those_who_may_steer_a_job_annotate_it(stage: Stage, ada: JobsApi) -> None:
    job = submit(ada, "first")
    with pytest.raises(Forbidden):
        stage.api.acting_for(EVE).annotate(job, note="mine")


@pytest.mark.parametrize("tag", ["", "Upper", "two words", "-x", "ü", "x" * 41, "a,b", "x\n"])
def test_a_word_that_cannot_be_a_tag_is_refused(ada: JobsApi, tag: str) -> None:
    job = submit(ada, "first")
    with pytest.raises(BadRequest, match="cannot be a tag"):
        ada.annotate(job, add=["good", tag])
    assert ada.get(job).get("tags") == [], "nothing of a refused request is stored"


def test_notes_and_tags_are_bounded(ada: JobsApi) -> None:
    job = submit(ada, "first")
    with pytest.raises(BadRequest, match=f"more than {MAX_NOTE} characters"):
        ada.annotate(job, note="x" * (MAX_NOTE + 1))
    ada.annotate(job, add=[f"t{n}" for n in range(MAX_TAGS)])
    with pytest.raises(BadRequest, match=f"at most {MAX_TAGS} tags"):
        ada.annotate(job, add=["one-more"])
    with pytest.raises(BadRequest, match="both added and removed"):
        ada.annotate(job, add=["t1"], remove=["t1"])


def test_a_note_is_one_harmless_line(ada: JobsApi) -> None:
    job = submit(ada, "first")
    ada.annotate(job, note="  two\n lines \x1b[31mred\u202e ")
    assert ada.get(job).get("note") == "two lines red"
