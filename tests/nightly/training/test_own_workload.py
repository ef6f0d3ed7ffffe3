"""The workload of `configs/own-workload`, to which `docs/workloads.md` leads: no edit of the frame. Its dropout and its
running mean go on bit for bit after it was killed."""

import re
import shutil
import signal
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tests.support.warm import Warm
from tests.support.workload_rig import Host, Job
from tpujob.domain.spec import jobspec

SPIRALS = ROOT / "configs" / "own-workload" / "spirals"
FLAGS = ("--steps=300", "--lr=1e-2", "--batch=64", "--checkpoint-every=50", "--log-every=1000")


def _spec_shown() -> str:
    """The job file of the section."""
    page = (ROOT / "docs" / "workloads.md").read_text(encoding="utf-8")
    [text] = re.findall(r"`spirals\.yaml`:\n\n```yaml\n(.*?)```", page, re.S)
    return text


@pytest.fixture
def spirals(tmp_path: Path, cache: Path, warm: Warm | None) -> Job:
    """A job to run it. Its folder lies beside the bundled ones, in a copy of the package made of links."""
    package = tmp_path / "code" / "workloads"
    package.mkdir(parents=True)
    for bundled in (ROOT / "workloads").iterdir():
        (package / bundled.name).symlink_to(bundled)
    shutil.copytree(SPIRALS, package / "spirals")
    job = Job(tmp_path, cache, warm, PYTHONPATH=str(tmp_path / "code"))
    job.module = "workloads.spirals"
    return job


def test_the_job_file_of_the_page_starts_it() -> None:
    assert {file.name for file in SPIRALS.glob("*.py")} == {
        "__init__.py",
        "__main__.py",
        "model.py",
    }
    spec = jobspec.load(_spec_shown(), "spirals.yaml")
    assert spec.run.command == "python3 -m workloads.spirals --steps=400 --lr=1e-2"


@pytest.mark.slow
def test_it_learns_and_its_state_goes_on_bit_for_bit(spirals: Job, tmp_path: Path) -> None:
    [undisturbed] = spirals.run(*FLAGS)
    numbers = undisturbed.numbers()
    assert len(numbers) == 300
    assert _accuracy(undisturbed) > 0.85, undisturbed.log.read_text()

    spirals.workdir = str(tmp_path / "again")
    with spirals.start(*FLAGS) as [first]:
        first.until(lambda host: host.events("checkpoint"))
        first.tell(signal.SIGKILL)
        first.code()
    [second] = spirals.run(*FLAGS)
    assert second.events("resume"), "it began at the start"
    assert first.numbers().items() <= numbers.items(), "differs before it was killed"
    assert second.numbers().items() <= numbers.items(), "its state was not carried"
    assert _accuracy(second) == _accuracy(undisturbed)


def _accuracy(host: Host) -> float:
    return host.events("metric")[-1]["value"]
