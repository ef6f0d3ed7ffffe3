"""The README tells the truth: its files are files, its commands run, its words are the product's."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.local_stack import LocalStack
from tpujob.domain.spec import jobspec

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = [line[2:] for block in re.findall(r"```console\n(.*?)```", README, re.S) for line in block.splitlines()
            if line.startswith("$ ")]  # fmt: skip
FILES = dict(re.findall(r"`([\w.-]+\.\w+)`:\n\n```\w+\n(.*?)```", README, re.S))


def test_the_readme_shows_files_and_commands() -> None:
    assert set(FILES) == {"train.py", "job.yaml"}
    assert len(COMMANDS) >= 10
    first = README.index("make demo"), README.index("make test")
    assert max(first) < 1000, "the two commands come first"


def test_every_job_file_in_the_readme_is_accepted() -> None:
    shown = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    jobs = [text for text in shown if "\ntpu:" in text]
    assert len(jobs) >= 2
    for text in jobs:
        jobspec.load(text, "README.md")  # raises BadSpec, which says what is wrong and where


def test_every_command_of_the_table_exists() -> None:
    from tpujob.cli.app import COMMANDS as KNOWN

    rows = [line for line in README.splitlines() if line.startswith("| `tpujob ")]
    named = {name for row in rows for name in re.findall(r"`tpujob (\w+)", row)}
    assert {"create", "list", "up", "down"} <= named
    missing = {name for name in named if name not in {*KNOWN, "emulator"}}
    assert not missing, f"the README names commands that do not exist: {missing}"


def test_every_link_of_the_readme_leads_to_a_file() -> None:
    links = re.findall(r"\]\(([^)#:]+)\)", README)
    names = re.findall(r"`((?:configs|workloads|tpujob|tests)/[\w/.-]+\w)`", README)
    assert {"docs/recovery.md", "configs/quickstart.yaml"} <= {*links, *names}
    missing = [target for target in (*links, *names) if not (ROOT / target).exists()]
    assert not missing, missing


def test_the_states_in_the_readme_are_the_states() -> None:
    from tpujob.domain.model import State

    drawing = README[README.index("queued -> provisioning") :][:500]
    for state in State:
        assert state in drawing, f"{state} is not in the diagram"


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[LocalStack]:
    """Somebody who has the two files and types what is written."""
    local = LocalStack(tmp_path)
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    local.env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{local.env['PATH']}"
    yield local
    local.down()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_commands_shown_can_be_typed_one_after_the_other(reader: LocalStack) -> None:
    for command in COMMANDS:
        deadline = time.monotonic() + 90
        while True:  # a person waits until the hosts are there
            done = subprocess.run(
                shlex.split(command),
                env=reader.env,
                cwd=reader.folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=90,
            )
            if done.returncode == 0:
                break
            assert time.monotonic() < deadline, (
                f"$ {command}\n{done.stdout}{done.stderr}{reader.backend_log()}"
            )
            time.sleep(1)
