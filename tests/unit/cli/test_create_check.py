"""`tpujob create --check`, and what `cost estimate --compare` makes of what it found."""

import importlib.util
import json
import platform
import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import pytest

from tests.support.golden import golden
from tests.support.scripted import ScriptedJobs
from tests.unit.cli.conftest import Tpujob
from tpujob.cli.render.check_page import CheckedTarget, FinishBy, check_page
from tpujob.domain.spec import jobspec
from tpujob.errors import BadRequest
from tpujob.submit.compile_check import (
    BundledProgram,
    TargetFinding,
    program_of,
    rooflines,
    save,
    speeds,
    target_of,
)
from tpujob.submit.environment import require_compiler

NEEDS_LIBTPU = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None,
    reason="libtpu is not installed: NOTHING WAS COMPILED FOR A TPU; it is in the extra `check`",
)
MLP = BundledProgram("mlp", ("--hidden=64", "--batch=64"))


def finding(target: str = "v4-8", **changed: object) -> TargetFinding:
    takes = {"bound": 2, "limited_by": "HBM"}
    pace = {"step": [4.0, 6.0], "per_second": [16.0, 10.7], "work": 9000, "unit": "steps"}
    pace |= {"hours": [10.0, 15.0], "chip_hours": [40.0, 60.0], "reached": [0.2, 0.3], "own": False}
    facts: dict[str, object] = {
        "target": target,
        "chips": 4,
        "fit": "yes",
        "reason": "",
        "advice": "",
        "rows": 64,
        "tokens": 0,
        "limit_bytes": 33017561088,
        "needed_bytes": 0,
        "warnings": [],
        "gains": [],
        "program": {"peak_bytes": 2**30, "flops": 1e9},
        "versions": {"libtpu": "0.0.42.1"},
        "step_seconds": takes,
        "pace": pace,
    }
    return cast(TargetFinding, {**facts, **changed})


@NEEDS_LIBTPU
@pytest.mark.slow
def test_a_job_is_compiled_and_compared(tpujob: Tpujob, api: ScriptedJobs, tmp_path: Path) -> None:
    file = tmp_path / "mlp.yaml"
    file.write_text(
        "name: small\ntpu: {type: [v4-8, v5e-4], zones: [us-central2-b, us-central1-a]}\n"
        "run: {workload: mlp, args: {hidden: 64, batch: 64, steps: 1000}}\n"
    )
    output = tpujob("create", str(file), "--check").out
    assert output.startswith("small: 1,000 steps")
    assert [line.split()[0] for line in output.splitlines() if " yes " in line] == ["v4-8", "v5e-4"]
    assert api.named("create") == api.named("plan") == [], "nothing is submitted"
    tpujob("cost", "estimate", str(file), "--compare", "--types", "v5e-4,v6e-4")
    (compared,) = api.named("compare")
    assert list(compared["options"]["rooflines"]) == ["v5e-4"], "v6e-4 was not compiled for"
    assert compared["options"]["rooflines"]["v5e-4"] > 100


HEAD = "name: a\ntpu: {type: v4-8}\n"


@pytest.mark.parametrize(
    ("option", "run", "why"),
    [
        ("--check", "{workload: mlp, args: {hiden: 64}}", "no such flag: --hiden; did you mean --hidden?"),
        ("--dry-run", "{workload: lm, args: {preset: 9b}}", "--preset=9b: there are "),
        ("--json", "{workload: vit, args: {lr: '{lr}'}}\nmatrix: {lr: [1, x]}", "--lr=x: Input should be a"),
        ("--check", "{workload: mlp, args: {steps: '9 --help'}}", "--steps=9 --help: Input should be a valid"),
    ],
)  # fmt: skip
def test_arguments_that_the_program_refuses_are_refused_before_anything_is_asked(
    tpujob: Tpujob, api: ScriptedJobs, tmp_path: Path, option: str, run: str, why: str
) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"{HEAD}run: {run}\n")
    assert f"{file}: run.args: {why}" in tpujob("create", str(file), option, code=65).err
    assert not api.calls


def test_shipped_versions_are_not_judged(tpujob: Tpujob, api: ScriptedJobs, tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text(f"{HEAD}run: {{workload: mlp, args: {{own: 64}}}}\ncode: .\n")
    tpujob("create", str(file))
    assert api.named("create")


@NEEDS_LIBTPU
def test_a_batch_is_refused_with_the_one_to_give(tpujob: Tpujob, tmp_path: Path) -> None:
    """512 devices; the program's own batch has 256 rows."""
    file = tmp_path / "mlp.yaml"
    file.write_text(
        'name: a\ntpu: {type: v4-1024}\nrun: {workload: mlp, args: {hidden: "256,256"}}\n'
    )
    output = " ".join(tpujob("create", str(file), "--check", code=78).out.split())
    assert "v4-1024: batch=256 cannot be split over 512 devices: --batch=512, or another" in output
    assert "`name: value` below `run.args`" in output


# What was found ------------------------------------------------------------------------------------------------------


def test_the_page() -> None:
    advice = {"reason": "it needs 40.10 GiB", "advice": "it fits with --remat=full"}
    no = finding(fit="no", **advice, program=None, needed_bytes=43_057_047_142)
    del no["pace"]
    little = finding(program={"peak_bytes": 45_000_000, "flops": 1e9})
    rows = {
        "it fits": CheckedTarget(finding(), "us-central2-b", 12.88),
        "little memory": CheckedTarget(little, "us-central2-b", 12.88),
        "it does not fit": CheckedTarget(no, "us-central2-b", 12.88),
        "without a price": CheckedTarget(finding(), "", None),
    }
    pages = {case: check_page("llama", [row], 120) for case, row in rows.items()}
    own = finding(
        "v5e-64", gains=["with remat=full: 1.00 GiB less memory; bound 1.20 times as long, by MXU"]
    )
    own["pace"] |= {"own": True, "hours": [4.0, 6.0]}  # type: ignore[typeddict-item, typeddict-unknown-key]
    both = [rows["it fits"], CheckedTarget(own, "us-west4-a", 30.0)]
    for hours, case in (
        (20, "both end"),
        (12, "one ends surely"),
        (5, "one may end"),
        (2, "none ends"),
    ):
        deadline = FinishBy(datetime(2026, 12, 4, 18, tzinfo=UTC), hours)
        pages[case] = check_page("llama", both, 120, deadline=deadline)
    golden("check", pages)


@pytest.mark.parametrize("columns", [64, 80, 100, 200])
def test_a_narrow_terminal_gets_fewer_columns_and_whole_figures(columns: int) -> None:
    slow = finding(program={"peak_bytes": 33_000_000_000, "flops": 1e9})
    slow["pace"] |= {"step": [0.8123, 12.3], "per_second": [123_456, 9_876_543]}  # type: ignore[typeddict-item]
    target = CheckedTarget(slow, "", 12.88)
    titles, cells = check_page("llama", [target], columns).splitlines()[2:4]
    wide = check_page("llama", [target], 200).splitlines()[3]
    assert max(len(titles), len(cells)) <= columns
    assert set(cells.split()) <= set(wide.split()), "no figure is cut"
    assert {"Slices", "Fits", "Memory", "Bound", "by", "Hours", "List"} <= set(titles.split())
    assert ("Per" in titles) is (columns == 200)
    assert ("Step" in titles) is (columns >= 80)


# What is kept --------------------------------------------------------------------------------------------------------


def test_a_speed_is_kept_for_the_same_program_arguments_and_versions(tmp_path: Path) -> None:
    save(tmp_path, MLP, "1", [finding(tokens=64 * 256), finding("v5e-4")])
    targets = ["v4-8", "v5e-4", "v6e-4"]
    assert speeds(tmp_path, MLP, targets, "1", "steps") == {"v4-8": 0.2, "v5e-4": 0.2}
    assert speeds(tmp_path, MLP, targets, "1", "samples")["v5e-4"] == 64 / 5
    assert speeds(tmp_path, MLP, targets, "1", "tokens") == {"v4-8": 64 * 256 / 5}
    assert speeds(tmp_path, MLP, targets, "2", "steps") == {}
    other = BundledProgram("mlp", ("--hidden=64", "--batch=128"))
    assert speeds(tmp_path, other, targets, "1", "steps") == {}
    longer = BundledProgram("mlp", (*MLP.options, "--steps=9"))
    assert speeds(tmp_path, longer, targets, "1", "steps") != {}, "a step takes as long"
    for file in (tmp_path / "checks").iterdir():
        file.write_text(json.dumps({"target": "v4-8", "pace": {"step": [1]}}))
    assert speeds(tmp_path, MLP, ["v4-8"], "1", "steps") == {}, "it is cut short"


def test_findings_outlast_a_cache_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "checks").touch()
    save(tmp_path, MLP, "1", [finding()])
    assert speeds(tmp_path, MLP, ["v4-8"], "1", "steps") == {}


def test_the_flags_of_a_job_are_the_compiler_s() -> None:
    env = {"LIBTPU_INIT_ARGS": "--xla_x=1", "WANDB": "off"}
    run = {"workload": "mlp", "env": env}
    spec = jobspec.parse({"name": "a", "tpu": {"type": "v4-8"}, "run": run})
    assert program_of(spec).flags == (("LIBTPU_INIT_ARGS", "--xla_x=1"),)
    assert [target_of("v5litepod-16", 2), target_of("v4-8", 1)] == ["2xv5e-16", "v4-8"]


# What compiles -------------------------------------------------------------------------------------------------------


def test_a_python_without_the_compiler_says_what_to_install(
    tpujob: Tpujob, job_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "mlp.yaml"
    file.write_text(f"{HEAD}run: {{workload: mlp}}\n")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    error = tpujob("create", str(file), "--check", code=2).err
    assert "this Python has no libtpu" in error
    assert "python3 -m pip install 'jax[tpu]'" in error
    assert rooflines(jobspec.load(file.read_text(), "mlp.yaml"), ["v4-8"], "steps", tmp_path) == {}
    error = tpujob("create", str(job_file), "--check", code=2).err
    assert "no function is named that returns its training step" in error


@pytest.mark.parametrize(("system", "machine"), [("darwin", "arm64"), ("linux", "aarch64")])
def test_a_machine_where_the_compiler_cannot_run_is_refused(
    system: str, machine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    with pytest.raises(BadRequest, match="made for Linux on x86-64 only"):
        require_compiler()
