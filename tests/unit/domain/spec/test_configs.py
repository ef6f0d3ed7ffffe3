"""The job files that ship with the project: each loads, resolves and says what it costs; the script beside one runs."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tpujob.domain.capacity.offers import offers
from tpujob.domain.spec.jobspec import WORKLOADS, JobSpec, load

FOLDER = ROOT / "configs"
CONFIGS = sorted(FOLDER.rglob("*.yaml"))
TRAIN = FOLDER / "own-script" / "train.py"


def read(path: Path) -> JobSpec:
    return load(path.read_text(), str(path))


def name(path: Path) -> str:
    return str(path.relative_to(FOLDER))


def test_each_workload_and_a_plain_command_have_a_config() -> None:
    names = {name(path) for path in CONFIGS}
    assert names >= {"quickstart.yaml", "hello.yaml", "own-script/job.yaml"}
    assert names >= {f"{workload}.yaml" for workload in WORKLOADS}


@pytest.mark.parametrize("path", CONFIGS, ids=name)
def test_each_config_loads_and_resolves(path: Path) -> None:
    spec = read(path)
    assert offers(spec)
    if spec.code is not None:
        assert (path.parent / spec.code).is_dir()


@pytest.mark.parametrize("path", CONFIGS, ids=name)
def test_the_comments_of_a_config_hold_what_a_reader_needs(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    editor = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
    assert editor, "the first line should tell an editor where the schema is"
    assert (path.parent / editor[1]).resolve() == FOLDER / "jobspec.schema.json"
    for word in ("# Costs:", "# Takes:", "# Expect:"):
        assert word in text
    usd = offers(read(path))[0].usd_per_hour
    assert f"{usd:.2f} $/h" in text, "the price in the comment is not the table's"


# The script of configs/own-script ------------------------------------------------------------------------------------


def train(workdir: Path, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(TRAIN), *args],
        env={**os.environ, "TPUJOB_WORKDIR": str(workdir)},
        stdout=subprocess.PIPE,
        text=True,
    )


def test_the_script_goes_on_where_it_was_stopped(tmp_path: Path) -> None:
    with train(tmp_path, "--steps", "1000000", "--seconds", "0.01") as first:
        assert first.stdout
        for line in first.stdout:
            if line.startswith("step 3 "):
                first.send_signal(signal.SIGTERM)
                break
        rest = first.stdout.read()
    stopped = re.search(r"saved at step (\d+)", rest)
    assert stopped, rest
    assert first.returncode == 75

    steps = int(stopped[1]) + 2
    with train(tmp_path, "--steps", str(steps), "--seconds", "0") as second:
        output = second.communicate()[0].splitlines()
    assert output == [
        f"going on from step {steps - 2}",
        f"step {steps - 1} of {steps}",
        f"step {steps} of {steps}",
    ]
    assert second.returncode == 0
