"""The backend where its disk does not last: what it takes from files, and what it refuses to begin with."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpujob.config import context
from tpujob.errors import BadRequest, BadSpec
from tpujob.web import deployed

LAB = """
name: lab
backend: https://tpujob-123456789.europe-west4.run.app
project: my-lab-4711
zones: [europe-west4-a]
buckets: {europe-west4: gs://my-lab-europe}
store: firestore
"""
TOKEN = "0123456789abcdef" * 4


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """As secrets are mounted: a context, and a token with a line's end."""
    (tmp_path / "context.yaml").write_text(LAB)
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    return tmp_path / "context.yaml", tmp_path / "token"


def test_the_settings_of_the_backend_are_those_of_its_files(
    tmp_path: Path, files: tuple[Path, Path]
) -> None:
    settings = deployed.prepared(tmp_path / "state", *files)
    assert (settings.context, settings.token()) == ("lab", TOKEN)
    here = context.current(settings)
    assert (here.project, here.store) == ("my-lab-4711", "firestore")
    assert here.backend == "", "it is that backend itself"
    again = deployed.prepared(tmp_path / "state", *files)
    assert again == settings


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("context.yaml", LAB.replace("firestore", "sqlite"), "would be lost"),
        ("token", "short", "shorter than 32"),
        ("context.yaml", None, "cannot read"),
        ("token", None, "cannot read"),
        ("context.yaml", "name: lab\nprojct: x\n", "projct"),
    ],
    ids=["sqlite", "short token", "no context", "no token", "bad context"],
)
def test_invalid_settings_are_reported_before_anything_listens(
    tmp_path: Path, files: tuple[Path, Path], name: str, text: str | None, said: str
) -> None:
    path = tmp_path / name
    path.unlink() if text is None else path.write_text(text)
    with pytest.raises((BadRequest, BadSpec), match=said):
        deployed.prepared(tmp_path / "state", *files)


def test_a_scheduler_is_only_believed_on_cloud_run(
    tmp_path: Path,
    files: tuple[Path, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = ["--context-file", str(files[0]), "--token-file", str(files[1])]
    words += ["--state", str(tmp_path / "state"), "--tick-account", "t@x.iam.gserviceaccount.com"]
    monkeypatch.delenv("K_SERVICE", raising=False)
    with pytest.raises(SystemExit, match="only for Cloud Run"):
        deployed.main(words)
    monkeypatch.setenv("K_SERVICE", "tpujob")
    with pytest.raises(SystemExit, match="needs --url"):
        deployed.main(words)
