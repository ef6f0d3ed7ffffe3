"""`tpujob run`: a job without a file goes the way of `create`."""

from pathlib import Path

import pytest

from tests.support.commands import Tpujob
from tests.support.scripted import ScriptedJobs


def test_a_command_becomes_a_job(tpujob: Tpujob, api: ScriptedJobs) -> None:
    words = ("--zone", "us-central2-b", "--on-demand", "--env", "LR=1e-3")
    program = ("python3", "/opt/train.py", "--steps=9", "a b")
    result = tpujob("run", "--type", "v4-8", *words, "--", *program)
    assert "Created job 000002  train" in result.out
    (call,) = api.named("create")
    spec = call["spec"]
    assert spec["run"]["command"] == "python3 /opt/train.py --steps=9 'a b'"
    assert spec["run"]["env"] == {"LR": "1e-3"}
    assert spec["tpu"]["zones"] == ["us-central2-b"]
    assert spec["tpu"]["pricing"] == "on-demand"


def test_one_word_is_shell_and_options_are_of_create(tpujob: Tpujob, api: ScriptedJobs) -> None:
    words = ("run", "--type", "v4-8", "--dry-run", "--json")
    assert tpujob(*words, "--", "/opt/run.sh").json["spec"]["name"] == "run"
    command = "make prepare && ./go --json"
    spec = tpujob(*words, "--name", "mine", "--", command).json["spec"]
    assert (spec["name"], spec["run"]["command"]) == ("mine", command)
    assert api.named("create") == []


def test_the_folder_of_the_code_is_shipped(
    tpujob: Tpujob, api: ScriptedJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "train.py").write_text("pass")
    words = ("run", "--type", "v4-8", "--code", "code", "--", "python3")
    assert tpujob(*words, "train.py").err == "code: 1 file, 4 B\n"
    assert len(api.named("put_bundle")) == 1
    result = tpujob("run", "--type", "v4-8", "--", "cat", "code/train.py", "/bin/ls")
    assert result.err.startswith("warning: code/train.py is not shipped: ")
    result = tpujob("run", "--type", "v4-8", "--", "python3", "code/train.py", code=65)
    assert "code/train.py will not be on the hosts, as no code is shipped" in result.err
    for dry_run in ((), ("--dry-run",)):
        result = tpujob(*words[:-2], *dry_run, "--", "python3", "trian.py", code=65)
        assert (
            "trian.py, which is not in the folder of `code`, will not be on the hosts" in result.err
        )
        (tmp_path / "code" / "up").symlink_to("/etc")
        result = tpujob(*words[:-2], *dry_run, "--", "python3", "train.py", code=65)
        assert "code: up is a link to /etc, which is outside code" in result.err
        (tmp_path / "code" / "up").unlink()
    assert len(api.named("put_bundle")) == 1
    result = tpujob("run", "--type", "v4-8", "--code", "none", "--", "python3", "train.py", code=2)
    assert "--code: none is not a folder" in result.err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--", "x"], "Missing option '--type'"),
        (["--type", "v4-8"], "Missing argument"),
        (["--type", "v4-9", "--", "x"], "tpu.type: "),
        (["--type", "v4-8", "--env", "A", "--", "x"], "--env A has no value"),
    ],
)
def test_a_wrong_command_line_is_explained(words: list[str], message: str, tpujob: Tpujob) -> None:
    code = 65 if "v4-9" in words else 2
    assert message in tpujob("run", *words, code=code).err
