"""The files of a job: what is listed, and for what the tokens are that people get."""

import pytest

from tests.support.stage import SPEC, Stage
from tpujob.errors import BadRequest
from tpujob.service import files


def save(stage: Stage, job: str, *paths: str) -> str:
    """Write these objects into the folder of the job, a second after each other; return the folder."""
    workdir = stage.api.get(job)["workdir"]
    for path in paths:
        stage.bucket.put(f"{workdir}/{path}", b"12345", timeout=1)
        stage.clock.sleep(1)
    return workdir


def test_checkpoints_and_outputs_are_listed_with_their_age(stage: Stage) -> None:
    job = stage.create()
    assert stage.api.outputs(job)["rows"] == []
    paths = ("checkpoints/100/a", "checkpoints/100/b", "outputs/x.csv", "attempts/1/events.jsonl")
    workdir = save(stage, job, *paths)
    saved = stage.api.outputs(job)
    assert (saved["id"], saved["workdir"], saved["complete"]) == (job, workdir, True)
    assert saved["rows"] == [
        {"path": "checkpoints/100", "step": 100, "files": 2, "bytes": 10, "age_s": 3.0},
        {"path": "outputs/x.csv", "step": None, "files": 1, "bytes": 5, "age_s": 2.0},
    ]


def test_the_checkpoint_that_counts_is_the_one_that_an_attempt_reported(stage: Stage) -> None:
    job = stage.started()
    save(stage, job, "checkpoints/100/a", "checkpoints/200/a")
    assert stage.api.outputs(job)["checkpoint"] is None
    stage.reports(job, phase="running", step=150, checkpoint=100)
    stage.until(job, lambda _: stage.api.get(job)["checkpoint"] == 100)
    assert stage.api.outputs(job)["checkpoint"] == 100


def test_a_folder_with_too_many_objects_is_said_to_be_cut(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "MAX_OBJECTS", 2)
    job = stage.create()
    save(stage, job, "checkpoints/1/a", "checkpoints/2/a")
    assert stage.api.outputs(job)["complete"]
    save(stage, job, "outputs/a")
    saved = stage.api.outputs(job)
    assert not saved["complete"]
    assert [row["step"] for row in saved["rows"]] == [1, 2]


def test_a_token_is_for_the_folder_of_the_job_and_writes_where_programs_save(stage: Stage) -> None:
    job = stage.create()
    folder = stage.api.get(job)["workdir"] + "/"
    assert stage.api.read_files(job)["token"] == f"read {folder} write"
    access = stage.api.write_files(job)
    assert access["token"] == f"read {folder} write {folder}checkpoints/ {folder}outputs/"
    assert (access["id"], access["endpoint"]) == (job, "")
    assert access["expires_at"] == "1970-01-24T03:33:20.000Z"


def test_a_group_has_no_files(stage: Stage) -> None:
    group = stage.api.create({**SPEC, "array": 2})["id"]
    for ask in (stage.api.outputs, stage.api.read_files, stage.api.write_files):
        with pytest.raises(BadRequest, match="is a group") as refused:
            ask(group)
        assert refused.value.hint == "Name one of its jobs, such as digits-0."
