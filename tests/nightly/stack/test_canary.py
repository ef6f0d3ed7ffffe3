"""Marked secrets in every place that takes one, then every command: afterwards all that was written is searched."""

import contextlib
import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.agent_host import until
from tests.support.commands import Tpujob
from tests.support.local_stack import LocalStack
from tpujob.cli.app import COMMANDS

pytestmark = pytest.mark.timeout(600)

SET, SHELL, WRITTEN, FILE = (
    f"canary-{what}-{uuid.uuid4().hex}" for what in ("set", "shell", "env", "file")
)
NAMES = {SET: "WANDB_API_KEY", SHELL: "HF_TOKEN", WRITTEN: "MY_PASSWORD"}
PROGRAM = """\
echo "has $WANDB_API_KEY, $HF_TOKEN and $MY_PASSWORD"
curl -s --max-time 1 -H "Authorization: $WANDB_API_KEY" http://127.0.0.1:1/ || true
touch "$TPUJOB_OUT/up"; until [ -e "$TPUJOB_OUT/go" ]; do sleep 0.1; done
echo "ValueError: $HF_TOKEN is refused, and so is $WANDB_API_KEY"; exit 1
"""

#: every command, how it is run while the job runs; the job's id is J. None: elsewhere in the story.
WHILE_IT_RUNS: dict[str, list[str] | None] = {
    **dict.fromkeys(("up", "down", "secret", "create", "wait", "delete", "clean", "resume")),
    **{name: [name] for name in ("status", "use", "list", "whoami", "members", "hosts", "leaks", "sweep", "fsck")},
    **{name: [name, "J"] for name in ("show", "why", "logs", "events", "outputs", "note")},
    "tag": ["tag", "marked", "J"],
    **{name: [name] for name in ("schema", "version", "doctor", "notifications", "capacity")},
    **{name: [name] for name in ("queue", "shares")},
    "run": ["run", "--type", "v4-8", "--dry-run", "--", "true"],
    "cancel": None,
    "open": ["open", "J", "--code"],
    "diff": ["diff", "J", "J"],
    "ssh": ["ssh", "J", "--", "env"],
    "exec": ["exec", "J", "--", "env"],
    **{name: [name, "--help"] for name in ("cp", "forward")},  # neither prints what a host has
    "cost": ["cost", "report"],
    "data": ["data", "where", "job.yaml"],
    "emulator": ["emulator", "status"],
    # of Google Cloud alone, a backend for others, or a whole demonstration of an hour of others' time
    **{name: [name, "--help"] for name in ("init", "login", "logout", "bucket", "quota", "demo", "serve")},
    **{name: [name, "--help"] for name in ("import", "fit")},
}  # fmt: skip


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[LocalStack]:
    """Somebody whose shell has a secret in it, with a stack that this shell has started."""
    local = LocalStack(tmp_path)
    local.env["HF_TOKEN"] = SHELL
    for name, value in local.env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)
    local.run("up")
    yield local
    local.down()


def job_file(folder: Path) -> Path:
    (folder / "code").mkdir()
    (folder / "code" / "train.py").write_text("print('code')\n")
    (folder / "code" / ".env").write_text(f"WANDB_API_KEY={FILE}\n")
    env, named = {"MY_PASSWORD": WRITTEN}, ["WANDB_API_KEY", "HF_TOKEN"]
    spec: dict[str, object] = {"name": "marked", "tpu": {"type": "v4-8"}, "code": "code"}
    spec |= {"run": {"command": PROGRAM, "env": env, "secrets": named}, "preflight": False}
    spec |= {"setup": "echo set up with $HF_TOKEN", "recovery": {"failures": 0}, "stop_grace": "2s"}
    file = folder / "job.yaml"
    file.write_text(json.dumps(spec))
    return file


def marked_in(data: bytes) -> set[str]:
    return {mark for mark in (SET, SHELL, WRITTEN, FILE) if mark.encode() in data}


def processes() -> dict[str, set[str]]:
    """Whoever has a mark in its command line or environment, and is no program of a job."""
    marks_of: dict[str, set[str]] = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line, variables = (process / "cmdline").read_bytes(), (process / "environ").read_bytes()
        except OSError:
            continue
        marks = marked_in(line)
        if b"\0TPUJOB_ATTEMPT=" not in b"\0" + variables:
            marks |= marked_in(variables)
        if marks:
            marks_of[line.replace(b"\0", b" ").decode(errors="replace")[:200]] = marks
    return marks_of


def files(folder: Path) -> dict[str, set[str]]:
    marks_of: dict[str, set[str]] = {}
    for where, _, names in os.walk(folder):  # passes over a folder that is removed meanwhile
        for path in (Path(where, name) for name in names):
            with contextlib.suppress(FileNotFoundError):
                if (
                    path.is_file()
                    and not path.is_symlink()
                    and (marks := marked_in(path.read_bytes()))
                ):
                    marks_of[str(path.relative_to(folder))] = marks
    return marks_of


def test_no_command_and_no_file_shows_a_secret(
    lab: LocalStack, capsys: pytest.CaptureFixture[str]
) -> None:
    assert set(WHILE_IT_RUNS) == set(COMMANDS), "a new command needs its line in this story"
    local, outputs = Tpujob(lab.state, capsys), list[str]()
    file = job_file(lab.folder)

    def tpujob(*words: str, code: int | None = 0) -> str:
        done = local(*words) if code == 0 else local(*words, code=code or 0)
        outputs.append(f"$ {' '.join(words)}\n{done.out}{done.err}")
        return done.out

    # set, refused, made
    command = [sys.executable, "-m", "tpujob", "secret", "set", "WANDB_API_KEY"]
    piped = subprocess.run(
        command, env=lab.env, input=SET.encode(), capture_output=True, check=True
    )
    outputs.append((piped.stdout + piped.stderr).decode())
    assert "HF_TOKEN is not set" in lab.run("create", str(file), code=65)
    tpujob("secret", "set", "HF_TOKEN", "--from-env")
    tpujob("secret", "list", "--json")
    tpujob("create", str(file), code=65)  # for the file of variables in its code
    (lab.folder / "code" / ".env").unlink()
    job = json.loads(tpujob("create", str(file), "--json"))["id"]

    # running
    up = lambda: list((lab.state / "farm").glob(f"**/attempts/{job}-1/out/up"))  # noqa: E731
    (out,) = until(up, "the program", 120)
    for words in filter(None, WHILE_IT_RUNS.values()):
        if words[0] == "ssh":  # writes past this process's streams
            outputs.append(lab.run(*(job if word == "J" else word for word in words)))
            continue
        run(local, outputs, [job if word == "J" else word for word in words])
        if words[0] in ("show", "events", "list", "diff"):
            run(local, outputs, [*(job if word == "J" else word for word in words), "--json"])
    assert processes() == {}, "other processes than the program have a secret"

    # ended
    out.with_name("go").touch()
    run(local, outputs, ["wait", job])
    view = lab.job(job)
    assert view["cause"], view
    for words in (["why", job], ["logs", job], ["show", job, "--json"], ["events", job, "--json"]):
        run(local, outputs, words)
    run(local, outputs, ["resume", job])
    for name in ("cancel", "delete"):
        run(local, outputs, [name, job, "--yes"] if name == "delete" else [name, "--release", job])
    output = "\n".join(outputs)
    assert "TPUJOB_EMULATED_HOST=" in output, "the environment of a session was not looked at"
    assert (
        f"has [secret {NAMES[SET]}], [secret {NAMES[SHELL]}] and [secret {NAMES[WRITTEN]}]"
        in output
    )
    assert f"set up with [secret {NAMES[SHELL]}]" in output
    for mark in (SET, SHELL, WRITTEN, FILE):
        assert mark not in output, next(text for text in outputs if mark in text)[:2000]

    # written: what `run.env` says is in the record and the plan; everything else in its place alone
    written = files(lab.folder)
    of_env = {WRITTEN}
    for path in [path for path, marks in written.items() if marks <= of_env]:
        own = path == "job.yaml" or "/plan-" in path or path.startswith("state/jobs.db")
        assert own, f"{path} has a value of run.env"
        del written[path]
    secrets = [path for path in written if path.startswith("state/secrets/")]
    assert {Path(path).name for path in secrets} == {"WANDB_API_KEY", "HF_TOKEN"}
    assert all((lab.folder / path).stat().st_mode & 0o777 == 0o600 for path in secrets)
    assert {path: marks for path, marks in written.items() if path not in secrets} == {}

    # removed
    lab.until(job, lambda view: view["state"] in ("cancelled", "failed"))
    run(local, outputs, ["clean", job, "--yes"])
    for name in ("WANDB_API_KEY", "HF_TOKEN"):
        run(local, outputs, ["secret", "remove", name])
    assert not [path for path, marks in files(lab.state).items() if marks - of_env]


def run(tpujob: Tpujob, outputs: list[str], words: list[str]) -> None:
    """The command, however it ends."""
    from tpujob.cli.app import run as command

    tpujob.capsys.readouterr()
    code = command(words)
    out, err = tpujob.capsys.readouterr()
    outputs.append(f"$ {' '.join(words)} -> {code}\n{out}{err}")
