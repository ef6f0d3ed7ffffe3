"""An error in the last lines of a program that ended with 0 is named beside its success."""

import pytest

from tests.support.records import host
from tpujob.agent.upload import error_at_end
from tpujob.agent.upload.evidence import TailLine
from tpujob.domain.failures.triage import ended
from tpujob.domain.model import Outcome, Proof

TRACEBACK = ["Traceback (most recent call last):", '  File "a.py", line 3, in <module>', "    f()"]
ERROR = "ValueError: bad"
CASES: dict[str, tuple[list[str], str | None]] = {
    "a traceback": ([*TRACEBACK, ERROR, "done"], ERROR),
    "of a rank": ([f"[rank1]: {line}" for line in [*TRACEBACK, ERROR]], f"[rank1]: {ERROR}"),
    "in colours": ([*TRACEBACK, "\x1b[1;35mValueError\x1b[0m: \x1b[35mbad\x1b[0m"], ERROR),
    "the last of two": ([*TRACEBACK, "KeyError: 1", "", *TRACEBACK, ERROR], ERROR),
    "no command": (["bash: line 1: pyhton3: command not found", "end"], None),
    "without bash": (["sh: 1: pyhton3: not found"], None),
    "long ago": ([*TRACEBACK, ERROR, *["step"] * 15], ""),
    "a long traceback": ([TRACEBACK[0], *TRACEBACK[1:] * 30, ERROR, "x"], ERROR),
    "of set-up": ([*TRACEBACK, ERROR], ""),
    "without an end": (TRACEBACK, ""),
    "words": (["404: page not found", "no error: Traceback of tests"], ""),
    "nothing": ([], ""),
}


@pytest.mark.parametrize("case", CASES)
def test_which_lines_name_an_error(case: str) -> None:
    lines, error = CASES[case]
    expected = lines[0] if error is None else error
    setup = b"[setup] " if case == "of set-up" else b""
    assert error_at_end([TailLine(line.encode(), tag=setup) for line in lines]) == expected


def test_a_success_with_an_error_names_it_and_keeps_its_text_for_the_owner() -> None:
    reports = [
        host(0, 0),
        host(1, 0, last_error=ERROR),
    ]
    end = ended(reports, 2)
    assert end is not None
    assert (end.outcome, end.cause, end.last_error) == (Outcome.SUCCEEDED, None, Proof(1, ERROR))
    assert end.message == "exit code 0 on all 2 hosts, but the last lines of host 1 have an error"
    assert end.detail == f"{end.message}: {ERROR}"
