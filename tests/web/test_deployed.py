"""The backend where its disk does not last: what it takes from files, and what it refuses to begin with."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from tests.support.callers import ADA
from tpujob.config import context
from tpujob.errors import BadRequest, BadSpec
from tpujob.web import deployed
from tpujob.web.door import TokenDoor
from tpujob.web.guard import Guard

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


# Under which names it answers ----------------------------------------------------------------------------------------

NAMED = "tpujob-123456789.europe-west4.run.app"
HASHED = "tpujob-yuquaflafa-ez.a.run.app"


def _knock(*headers: tuple[str, str]) -> int:
    """The status that a request with these headers gets from a backend that was told both names of its service."""
    sent: list[Any] = []
    hosts = deployed.hosts_of([f"https://{NAMED}", f"https://{HASHED}"])

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def receive() -> Any:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    told = [("authorization", f"Bearer {TOKEN}"), *headers]
    scope: Scope = {
        "type": "http",
        "method": "GET",
        "path": "/v1/jobs",
        "headers": [(name.encode(), value.encode()) for name, value in told],
    }
    asyncio.run(Guard(app, door=TokenDoor(TOKEN, ADA), hosts=hosts)(scope, receive, send))
    return sent[0]["status"]


@pytest.mark.parametrize(
    "host", [NAMED, HASHED, f"{HASHED}:443", HASHED.upper(), f"{NAMED.title()}:443"]
)
def test_a_service_of_cloud_run_answers_under_both_of_its_names(host: str) -> None:
    """`gcloud run services proxy` asks for `status.url`, which is the name with the hash, shows its own token beside
    ours, and leaves ours alone."""
    assert _knock(("host", host), ("x-serverless-authorization", "Bearer of-the-proxy")) == 200


@pytest.mark.parametrize(
    "host",
    [
        "",
        "tpujob-otherhashx-ez.a.run.app",  # the same name in another project
        "other-yuquaflafa-ez.a.run.app",  # another service of the project
        "tpujob-987654321.europe-west4.run.app",
        "tpujob-123456789.us-central1.run.app",
        f"tag---{HASHED}",
        f"{HASHED}.evil.example",
        "a.run.app",
        "tpujob",
    ],
)
def test_it_answers_under_no_other_name(host: str) -> None:
    assert _knock(("host", host)) == 400


def test_a_name_beside_its_own_does_not_help() -> None:
    assert _knock(("host", HASHED), ("host", "evil.example")) == 400
    assert _knock(("x-forwarded-host", HASHED), ("host", "evil.example")) == 400
    assert _knock() == 400


@pytest.mark.parametrize("url", ["tpujob.example.org", "", "https://", "/v1"])
def test_a_url_without_a_host_is_refused(url: str) -> None:
    """It would let in requests that name no host at all."""
    with pytest.raises(BadRequest, match="names no host"):
        deployed.hosts_of(["https://tpujob.example.org", url])
