"""`tpujob secret`: where a value may come from, and that no command shows one."""

import io
import os
import pty
from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Tpujob
from tests.support.scripted import ScriptedJobs
from tpujob.api import JobView
from tpujob.errors import NotFound

CANARY = "canary-4711-value"


def set_stdin(monkeypatch: pytest.MonkeyPatch, data: bytes) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))


def test_a_value_comes_from_standard_input_or_the_environment(
    tpujob: Tpujob, api: ScriptedJobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    for data, value in ((f"{CANARY}\r\n".encode(), CANARY), (b"two\nlines\n\n", "two\nlines\n")):
        set_stdin(monkeypatch, data)
        result = tpujob("secret", "set", "HF_TOKEN")
        assert api.kept == {"HF_TOKEN": value}
        assert result.out == "HF_TOKEN is set. A job gets it with `run: {secrets: [HF_TOKEN]}`.\n"
        assert "canary" not in result.err
    words = ("secret", "set", "HF_TOKEN", "--from-env")
    assert "no variable HF_TOKEN" in tpujob(*words, code=2).err
    monkeypatch.setenv("HF_TOKEN", CANARY)
    tpujob(*words)
    assert api.kept == {"HF_TOKEN": CANARY}


def test_a_person_is_asked_and_the_typed_text_is_hidden(tpujob: Tpujob, api: ScriptedJobs) -> None:
    ours, theirs = pty.openpty()
    process = tpujob.popen("secret", "set", "HF_TOKEN", stdin=theirs, stderr=theirs)
    os.close(theirs)
    output = b""
    while b"HF_TOKEN: " not in output:
        output += os.read(ours, 1000)
    os.write(ours, CANARY.encode() + b"\n")
    assert process.wait(60) == 0
    while True:
        try:
            output += os.read(ours, 1000)
        except OSError:  # the other end is closed
            break
    os.close(ours)
    assert api.kept == {"HF_TOKEN": CANARY}
    assert CANARY.encode() not in output
    assert process.stdout is not None
    assert CANARY not in process.stdout.read()


@pytest.mark.parametrize(
    ("words", "data", "says"),
    [
        (("set", "A", CANARY), b"", "unexpected extra argument"),
        (("set", "a-b"), CANARY.encode(), "'a-b' cannot be the name of a secret"),
        (("set", "A"), b"\n", "the value of A is empty\n  Type it"),
        (("set", "A"), b"\xff" + CANARY.encode(), "the value of A is not text"),
        (("set", "A"), CANARY.encode() * 5000, "the value of A has more than 64 KiB"),
        (("remove", "../x"), b"", "cannot be the name of a secret"),
    ],
)
def test_what_cannot_be_set_is_refused(
    tpujob: Tpujob,
    api: ScriptedJobs,
    monkeypatch: pytest.MonkeyPatch,
    words: tuple[str, ...],
    data: bytes,
    says: str,
) -> None:
    set_stdin(monkeypatch, data)
    result = tpujob("secret", *words, code=2)
    assert says in result.err
    assert data == b"" or "canary" not in result.err
    assert api.kept == {}


def test_secrets_are_listed_by_name_and_removed(tpujob: Tpujob, api: ScriptedJobs) -> None:
    assert tpujob("secret", "list").out.startswith("No secret is set: `tpujob secret set NAME`")
    api.kept.update(WANDB_API_KEY=CANARY, HF_TOKEN=CANARY)
    listed = tpujob("secret", "list").out.splitlines()
    assert [line.split()[0] for line in listed] == ["Name", "HF_TOKEN", "WANDB_API_KEY"]
    names = [secret["name"] for secret in tpujob("secret", "list", "--json").json]
    assert names == ["HF_TOKEN", "WANDB_API_KEY"]
    assert tpujob("secret", "remove", "HF_TOKEN").out == "HF_TOKEN is removed.\n"
    assert "no secret HF_TOKEN is set" in tpujob("secret", "remove", "HF_TOKEN", code=3).err
    assert set(api.kept) == {"WANDB_API_KEY"}


def test_code_that_vanished_meanwhile_is_sent_again(
    tpujob: Tpujob, api: ScriptedJobs, monkeypatch: pytest.MonkeyPatch, job_file: Path
) -> None:
    create, tried = api.create, list[dict[str, Any]]()

    def vanish(*args: Any, **options: Any) -> JobView:
        tried.append(options)
        if len(tried) == 1:
            raise NotFound("the code of the job is not in the bucket")
        return create(*args, **options)

    monkeypatch.setattr(api, "create", vanish)
    job_file.write_text(job_file.read_text() + "code: .\n")
    tpujob("create", str(job_file))
    assert len(api.named("put_bundle")) == 2
    assert tried[0] == tried[1], "with the same key, so that one job is made"
