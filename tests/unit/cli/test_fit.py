"""`tpujob fit`: what it asks the check for, and the answers to bad input, before anything is compiled."""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.support.scripted import ScriptedJobs
from tests.unit.cli.conftest import Tpujob
from tests.unit.cli.test_create_check import finding
from tpujob.api import ReachedView
from tpujob.cli.commands.fit import changes, moment, wanted
from tpujob.domain.spec import jobspec
from tpujob.errors import BadRequest, BadSpec
from tpujob.submit import compile_check

HERE = timezone(timedelta(hours=1))
NOW = datetime(2026, 12, 2, 15, 30, tzinfo=HERE)  #: a Wednesday


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("Friday", "2026-12-05T00:00+01:00"),
        ("fri 18:00", "2026-12-04T18:00+01:00"),
        ("Wednesday", "2026-12-03T00:00+01:00"),
        ("wed 15:00", "2026-12-09T15:00+01:00"),
        ("2026-12-04", "2026-12-05T00:00+01:00"),
        ("2026-12-04T18:00", "2026-12-04T18:00+01:00"),
        ("2026-12-04T18:00Z", "2026-12-04T18:00+00:00"),
        ("36h", "2026-12-04T03:30+01:00"),
    ],
)
def test_a_deadline_is_a_weekday_a_time_or_a_duration(text: str, at: str) -> None:
    assert moment(text, NOW) == datetime.fromisoformat(at)


@pytest.mark.parametrize("text", ["someday", "fri 25:00", "2026-13-01", "-3h", "fr"])
def test_what_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(BadRequest, match="is not a time"):
        moment(text, NOW)


def test_arguments_are_numbers_truths_or_text() -> None:
    texts = ["remat=full layers=2", "mesh=data=2,fsdp=-1 donate=false"]
    assert changes(texts) == (
        {"remat": "full", "layers": 2}, {"mesh": "data=2,fsdp=-1", "donate": False},
    )  # fmt: skip
    for bad in ("remat", "=3", "", "a-b=3"):
        with pytest.raises(BadRequest, match="is not NAME=VALUE"):
            changes([bad])


def test_a_target_is_slices_of_a_type() -> None:
    assert wanted("2xv5e-16", (), "spot")[:2] == ("v5litepod-16", 2)
    assert wanted("v4-8", (), "spot")[:2] == ("v4-8", 1)


def test_the_check_gets_the_function_and_what_the_lab_reached(
    tpujob: Tpujob, api: ScriptedJobs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Any] = []

    def check(*arguments: Any) -> list[compile_check.TargetFinding]:
        asked.extend(arguments)
        return [finding("v4-8"), finding("v5e-4", fit="no", reason="it needs 20 GiB", program=None)]

    monkeypatch.setattr(compile_check, "check_function", check)
    monkeypatch.chdir(tmp_path)
    api.reached_parts = [ReachedView(generation="v4", least=0.3, most=0.4, jobs=5)]
    command = [
        "fit",
        "train.py:step",
        "--type",
        "v4-8, v5e-4",
        "--tokens",
        "10B",
        "--mesh",
        "fsdp=-1",
    ]
    command += [
        "--with",
        "remat=full",
        "--python",
        "/env/bin/python",
        "--zone",
        "us-central2-b",
        "--by",
        "90h",
    ]
    output = tpujob(*command, code=78).out
    function, targets, options = asked
    assert (function.name, function.folder, function.python) == (
        "train.py:step",
        str(tmp_path),
        "/env/bin/python",
    )
    assert (targets, function.mesh) == (["v4-8", "v5e-4"], "fsdp=-1")
    assert (options.amount, options.unit, options.patience) == (1e10, "tokens", 1200)
    assert (options.variants, options.reached) == (({"remat": "full"},), {"v4": (0.3, 0.4)})
    assert "Cheapest that ends by" in output
    assert "v5e-4: it needs 20 GiB" in output
    assert not api.named("create")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["step", "--type", "v4-8"], "'step' names no function"),
        (["train.py:", "--type", "v4-8"], "names no function"),
        (["train.py:step", "--type", "v4-8", "--steps", "3", "--tokens", "1B"], "give one of --steps and --tokens"),
        (["train.py:step", "--type", "v4-8", "--steps", "many"], "--steps: 'many' is not a number"),
        (["train.py:step", "--type", "v4-8", "--by", "2020-01-01"], "has passed"),
    ],
)  # fmt: skip
def test_a_bad_command_line_is_refused(tpujob: Tpujob, words: list[str], says: str) -> None:
    assert says in tpujob("fit", *words, code=2).err


@pytest.mark.parametrize(
    ("types", "python", "says"),
    [
        ("v4-20", "", "v4-20: no such type; nearest: v4-16, v4-32"),
        ("2xv3-32", "", "several slices of v3 cannot run one program"),
        ("v4-8", "/nowhere/python", "/nowhere/python cannot be run: No such file or directory"),
        ("v4-8", "/bin/true", "the check needs libtpu, the TPU's compiler"),
    ],
)
def test_what_cannot_be_compiled_is_one_line(
    tmp_path: Path, types: str, python: str, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    if python == "/bin/true":  # an interpreter without JAX, as far as its answer goes
        python = str(tmp_path / "python")
        Path(python).write_text("#!/bin/sh\necho jax numpy libtpu\n")
        Path(python).chmod(0o755)
    function = compile_check.CheckedFunction("train.py:step", str(tmp_path), python)
    with pytest.raises(BadSpec, match=r"train.py:step cannot be checked: the line above says why"):
        compile_check.check_function(function, types.split(","), compile_check.CheckOptions())
    (line,) = capfd.readouterr().err.splitlines()
    assert says in line


# `check:` of a job file ----------------------------------------------------------------------------------------------

JOB = "name: a\ntpu: {type: [v4-16, v5e-16], slices: 2}\nrun: {command: python3 train.py, env: {SIZE: 8}}\ncode: src\n"


def test_a_job_s_function_is_checked_for_its_types(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(
        compile_check, "check_function", lambda *arguments: asked.extend(arguments) or []
    )
    spec = jobspec.load(
        f"{JOB}check: {{function: train.py:step, mesh: 'data=2,fsdp=-1', steps: 9000}}\n",
        "job.yaml",
    )
    assert compile_check.check_job(spec, tmp_path, tmp_path) == []
    function, targets, options = asked
    assert (function.name, function.folder) == ("train.py:step", str(tmp_path / "src"))
    assert (function.mesh, function.environment) == ("data=2,fsdp=-1", (("SIZE", "8"),))
    assert (targets, options.amount) == (["2xv4-16", "2xv5e-16"], 9000)


def test_check_is_a_function_and_nothing_else() -> None:
    short = jobspec.load(f"{JOB}check: pkg.train:step\n", "job.yaml")
    assert short.check is not None
    assert (short.check.function, short.check.mesh, short.check.steps) == (
        "pkg.train:step",
        "",
        None,
    )
    assert jobspec.parse(jobspec.dump(short)) == short
    for bad, says in (
        ("train.py", "must be a function of a file or module in code, such as train.py:step"),
        ("{function: 'a:b', mesh: big}", "must be the sizes of the mesh's axes"),
        ("{function: 'a:b', steps: 0}", "check.steps"),
        ("{mesh: 'fsdp=-1'}", "check.function"),
    ):
        with pytest.raises(BadSpec) as refused:
            jobspec.load(f"{JOB}check: {bad}\n", "job.yaml")
        assert says in str(refused.value)
