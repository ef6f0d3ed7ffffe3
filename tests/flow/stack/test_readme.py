"""README.md and docs/tutorial.md are true: commands run, job files are accepted, links lead somewhere."""

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
from tests.support.paths import ROOT
from tpujob.cli.app import COMMANDS
from tpujob.domain.spec import jobspec

README = (ROOT / "README.md").read_text(encoding="utf-8")
TUTORIAL = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
JOB_FILE = (ROOT / "docs" / "job-file.md").read_text(encoding="utf-8")


def commands_of(page: str) -> list[str]:
    """Return the commands in the page's blocks: each line after `$ `."""
    blocks = re.findall(r"```console\n(.*?)```", page, re.S)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


def files_of(page: str) -> dict[str, str]:
    """Return the files that the page shows, by name."""
    return dict(re.findall(r"`([\w.-]+\.\w+)`:\n\n```\w+\n(.*?)```", page, re.S))


@pytest.mark.parametrize(
    ("page", "fewest"), [(README, 10), (TUTORIAL, 6)], ids=["readme", "tutorial"]
)
def test_the_page_shows_files_and_commands(page: str, fewest: int) -> None:
    assert set(files_of(page)) == {"train.py", "job.yaml"}
    assert len(commands_of(page)) >= fewest


def test_the_readme_is_short_and_begins_with_the_two_commands() -> None:
    assert len(README.split()) <= 1300
    first = README.index("make demo"), README.index("make test")
    assert max(first) < 1000, "the two commands come first"


@pytest.mark.parametrize(
    "page", [README, TUTORIAL, JOB_FILE], ids=["readme", "tutorial", "job-file"]
)
def test_every_job_file_that_is_shown_is_accepted(page: str) -> None:
    shown = re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)
    jobs = [text for text in shown if "\ntpu:" in text]
    assert jobs
    for text in jobs:
        jobspec.load(text, "a page")  # raises BadSpec, which says what is wrong and where


def test_every_command_of_the_table_exists() -> None:
    rows = [line for line in README.splitlines() if line.startswith("| `tpujob ")]
    named = {name for row in rows for name in re.findall(r"`tpujob (\w+)", row)}
    assert {"create", "list", "up", "down"} <= named <= {*COMMANDS, "emulator"}


def test_the_readme_leads_to_every_page_and_to_files_that_are_there() -> None:
    links = re.findall(r"\]\(([^)#:]+)", README)
    names = re.findall(r"`((?:configs|workloads|tpujob|tests)/[\w/.-]+\w)`", README)
    assert {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")} <= {*links}
    missing = [name for name in names if not (ROOT / name).exists()]
    assert not missing, missing


def anchors_of(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as GitHub makes them."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
    headings = re.findall(r"^#+ (.*)", text, re.M)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_link_between_pages_leads_to_a_heading() -> None:
    tops = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "deploy/README.md")
    wrong: list[str] = []
    for page in [*map(ROOT.joinpath, tops), *(ROOT / "docs").glob("*.md")]:
        text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.S)
        for target, anchor in re.findall(r"\]\(([^)#:\s]*)#?([^)\s:]*)\)", text):
            file = (page.parent / target) if target else page
            if not file.exists() or (anchor and anchor not in anchors_of(file)):
                wrong.append(f"{page.name}: {target}#{anchor}")
    assert not wrong, wrong


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[LocalStack]:
    """A folder with its own local stack, and `tpujob` on the path."""
    local = LocalStack(tmp_path)
    local.env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{local.env['PATH']}"
    yield local
    local.down()


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [README, TUTORIAL], ids=["readme", "tutorial"])
def test_the_commands_shown_can_be_typed_one_after_the_other(reader: LocalStack, page: str) -> None:
    for name, text in files_of(page).items():
        (reader.folder / name).write_text(text)
    for command in commands_of(page):
        deadline = time.monotonic() + 90
        while True:  # a person waits until the hosts are there
            done = subprocess.run(
                shlex.split(command),
                env=reader.env,
                cwd=reader.folder,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=240,
            )
            if done.returncode == 0:
                break
            assert time.monotonic() < deadline, (
                f"$ {command}\n{done.stdout}{done.stderr}{reader.backend_log()}"
            )
            time.sleep(1)
