"""`docs/workloads.md` tells the truth: its program runs, stops, goes on, and is understood by the agent. What it and
`docs/your-trainer.md` name exists."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.paths import ROOT
from tpujob.agent.upload.progress import ProgressReader
from tpujob.domain.spec.watch import TRAINERS

PAGE = (ROOT / "docs" / "workloads.md").read_text(encoding="utf-8")
OF_OTHERS = (ROOT / "docs" / "your-trainer.md").read_text(encoding="utf-8")


@pytest.fixture
def program(tmp_path: Path) -> Path:
    """The program of the section, in a folder of its own."""
    section = PAGE[PAGE.index("## A program of your own") :]
    match = re.search(r"```python\n(.*?)```", section, re.S)
    assert match, "the section shows a program"
    file = tmp_path / "train.py"
    file.write_text(match[1])
    return file


def started(program: Path, steps: int, out: Path) -> subprocess.Popen[bytes]:
    importable = str(ROOT / "tpujob" / "contract" / "importable")
    env = {**os.environ, "STEPS": str(steps), "TPUJOB_OUT": str(out), "PYTHONPATH": importable}
    return subprocess.Popen([sys.executable, str(program)], cwd=program.parent, env=env)


def facts(out: Path) -> dict:
    """Return what the agent makes of the events."""
    reader = ProgressReader(str(out / "events.jsonl"))
    reader.look()
    return dict(reader.facts)


def test_the_program_on_the_page_stops_and_resumes(program: Path, tmp_path: Path) -> None:
    first_out, second_out = tmp_path / "1", tmp_path / "2"
    with started(program, 10**9, first_out) as first:
        deadline = time.monotonic() + 60
        while not facts(first_out).get("step"):
            assert time.monotonic() < deadline, "it tells no step"
            assert first.poll() is None, "it ended too early"
        first.send_signal(signal.SIGTERM)
        assert first.wait(60) == 75
    # in chunks, as the agent reads
    reader = ProgressReader(str(first_out / "events.jsonl"))
    while reader.look():
        pass
    stopped = reader.facts
    assert stopped["checkpoint"] == stopped["step"]

    with started(program, stopped["step"] + 2, second_out) as second:
        assert second.wait(60) == 0
    lines = (second_out / "events.jsonl").read_text().splitlines()
    assert f'"step": {stopped["step"] + 1},' in lines[0], "no step is lost and none is made twice"
    ended = facts(second_out)
    assert ended["step"] == ended["steps"] == ended["checkpoint"] == stopped["step"] + 2


@pytest.mark.parametrize("page", [PAGE, OF_OTHERS])
def test_every_file_and_folder_that_a_page_names_exists(page: str) -> None:
    named = re.findall(r"`((?:configs|workloads|tests|docs)/[\w./-]+)`", page)
    assert named
    missing = [name for name in named if not (ROOT / name).exists()]
    assert not missing, missing


def test_the_page_of_others_names_every_trainer_and_every_callback() -> None:
    files = (ROOT / "tpujob" / "contract" / "importable" / "tpujob_events").glob("[a-z]*.py")
    assert {f"tpujob_events.{file.stem}" for file in files} == set(
        re.findall(r"from (tpujob_events\.\w+) import", OF_OTHERS)
    )
    words = re.search(r"`watch: (\w+)`((?:, `\w+`)*) or `(\w+)`", OF_OTHERS)
    assert words
    assert {words[1], words[3], *re.findall(r"\w+", words[2])} == set(TRAINERS)


def test_every_program_that_the_page_starts_is_there() -> None:
    programs = set(re.findall(r"python -m ((?:workloads|tests)\.[\w.]+)", PAGE))
    assert {"workloads.tables", "workloads.numerics"} <= programs
    for program in programs - {"workloads.NAME", "workloads.spirals"}:
        path = ROOT / program.replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), program
