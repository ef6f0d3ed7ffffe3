"""docs/commands.md and docs/job-file.md list what the program has, and docs/troubleshooting.md explains every end."""

import re

import pytest

from tests.support.generated_docs import DOCS, PAGES, current
from tpujob.cli.errors import EXIT_CODES
from tpujob.contract.exits import Exit
from tpujob.domain.failures.starts import UNUSABLE
from tpujob.domain.model import Cause

TROUBLESHOOTING = (DOCS / "troubleshooting.md").read_text(encoding="utf-8")
#: of programs that a signal has ended: SIGABRT, SIGKILL, SIGTERM
SIGNALS = {134, 137, 143}


@pytest.mark.parametrize("page", PAGES)
def test_a_generated_page_is_current(page: str) -> None:
    assert (DOCS / page).read_text(encoding="utf-8") == current(page), "run `make docs`"


def first_cells(heading: str, before: str = "\n## ") -> set[str]:
    """Return the words in backticks in the first cells of the tables below a heading, and `before` another one."""
    section = TROUBLESHOOTING.partition(f"## {heading}\n")[2].partition(before)[0]
    firsts = re.findall(r"^\| ([^|]*) \|", section, re.M)
    return {name for cell in firsts for name in re.findall(r"`(\w+)`", cell)}


def test_every_cause_has_its_row() -> None:
    assert first_cells("Causes", "\n### ") == set(Cause)


def test_the_evidence_of_every_cause_is_named() -> None:
    assert first_cells("What a cause needs as evidence") == set(Cause)


def test_every_exit_code_has_its_row() -> None:
    assert first_cells("Exit codes of commands") == {str(code) for code in EXIT_CODES}
    programs = {int(code) for code in first_cells("Exit codes of programs")}
    assert programs == {*map(int, Exit), *SIGNALS, *UNUSABLE}
