"""A job runs the submitted code, even if the folder changes afterwards, and shows which code it is."""

import hashlib
import io
import subprocess
import tarfile
from pathlib import Path

import pytest

from tests.support.stage import Stage
from tpujob.api import JobView
from tpujob.domain.model import State
from tpujob.errors import NotFound
from tpujob.submit.archive import pack


def git(folder: Path, *words: str) -> None:
    author = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    subprocess.run(["git", *author, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "code"
    folder.mkdir()
    git(folder, "init", "-q", "-b", "main")
    (folder / "train.py").write_text("print('one')\n")
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "--no-gpg-sign", "-m", "one")
    return folder


def submit(stage: Stage, folder: Path) -> JobView:
    """Submit a job like `tpujob create` with `code:`."""
    bundle = pack(folder)
    spec = {"name": "digits", "tpu": {"type": "v4-16"}, "run": {"command": "python train.py"}}
    bucket = stage.api.plan(spec)["bucket"]
    path = stage.api.put_bundle(bundle.sha256, bundle.data, bucket=bucket)
    return stage.api.create(spec, bundles=[path], code=bundle.standing)


def test_a_requeued_job_runs_the_code_that_was_submitted(stage: Stage, checkout: Path) -> None:
    job_id = submit(stage, checkout)["id"]
    first = stage.running(job_id)
    (checkout / "train.py").write_text("print('two')\n")
    git(checkout, "commit", "-qa", "--no-gpg-sign", "-m", "two")
    stage.preempt()
    second = stage.running(job_id, 2)
    assert second.bundles == first.bundles
    assert second.code == first.code
    data = stage.bucket.get(second.bundles[0], timeout=1)
    assert hashlib.sha256(data).hexdigest() in second.bundles[0]
    assert b"one" in _file(data, "train.py")
    assert pack(checkout).sha256 not in second.bundles[0]


def test_only_a_changed_checkout_costs_an_object(stage: Stage, checkout: Path) -> None:
    clean = submit(stage, checkout)
    assert clean["code"] is not None
    assert (clean["code"]["branch"], clean["code"]["dirty"]) == ("main", False)
    assert clean["code"]["diff"] == ""
    assert not [path for path in stage.bucket.objects if path.endswith(".diff")]

    (checkout / "train.py").write_text("print('two')\n")
    changed = submit(stage, checkout)
    assert changed["code"] is not None
    assert changed["code"]["commit"] == clean["code"]["commit"]
    assert changed["code"]["dirty"]
    assert b"+print('two')" in stage.bucket.get(changed["code"]["diff"], timeout=1)
    assert stage.api.get(changed["id"])["code"] == changed["code"], "it is stored"


def test_two_jobs_are_compared(stage: Stage, checkout: Path) -> None:
    a = submit(stage, checkout)["id"]
    (checkout / "train.py").write_text("print('two')\n")
    b = submit(stage, checkout)["id"]
    stage.api.delete(b)
    stage.until(b, State.CANCELLED)
    diff = stage.api.diff(a, b)
    assert [side["id"] for side in (diff["a"], diff["b"])] == [a, b]
    assert diff["spec"] == []
    assert {c["key"]: c["b"] for c in diff["outcome"]}["state"] == "cancelled"
    (file,) = diff["files"]
    assert (file["path"], file["change"]) == ("train.py", "changed")
    assert "-print('one')\n+print('two')\n" in file["diff"]
    assert stage.api.diff(a, a)["files"] == []
    with pytest.raises(NotFound):
        stage.api.diff(a, "999999")


def test_a_bundle_that_is_gone_is_reported(stage: Stage, checkout: Path) -> None:
    a = submit(stage, checkout)
    (checkout / "new.py").write_text("")
    b = submit(stage, checkout)
    stage.bucket.delete(a["bundles"][0], timeout=1)
    diff = stage.api.diff(a["id"], b["id"])
    assert diff["files"] == []
    assert "gone" in diff["files_unknown"]


def _file(archive: bytes, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        content = tar.extractfile(name)
        assert content
        return content.read()
