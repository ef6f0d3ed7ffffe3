"""The backend's log: no other process writes a line of it, and it does not fill a disk."""

import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.callers import TokenDoor
from tests.support.http import ask
from tests.support.scripted import ScriptedJobs, listening, scripted_app
from tests.support.world import ADA
from tpujob.web import log
from tpujob.web.log import OneLine


def record(message: str, word: str, exc_info: Any = None) -> logging.LogRecord:
    return logging.LogRecord("tpujob.web", logging.WARNING, "", 0, message, (word,), exc_info)


@given(st.text(max_size=200))
def test_no_text_from_outside_begins_a_line(text: str) -> None:
    try:
        raise ValueError(text)
    except ValueError:
        failed = record("said %s", text, exc_info=sys.exc_info())
    lines = OneLine(log.FORMAT).format(failed).splitlines()
    assert lines[0].split(" ", 2)[2].startswith("WARNING tpujob.web: said")
    assert all(line.startswith("    | ") for line in lines[1:])
    assert all(line.isprintable() or not line.isascii() for line in lines)


def test_a_long_message_is_cut() -> None:
    assert len(OneLine("%(message)s").format(record("%s", "a" * 100_000))) == log.MAX_LINE


def test_a_refused_request_is_told_in_quotes(caplog: pytest.LogCaptureFixture) -> None:
    forged = "/v1/jobs%0A2026-01-01%20INFO%20root:%20the%20admin%20came%20in"
    with listening(scripted_app(ScriptedJobs(), TokenDoor("a token", ADA))) as url:
        assert ask(url, "GET", forged + "x" * 1000)[0] == 401
    (line,) = [r.getMessage() for r in caplog.records if "the admin came in" in r.getMessage()]
    assert "\n" not in line
    assert "'GET /v1/jobs\\n2026" in line
    assert len(line) < 500


CHATTY = """
import logging, os, pathlib, sys
from tpujob.web import log
log.LARGEST = 20_000
log.log_to_stderr(pathlib.Path(sys.argv[1]))
for n in range(1000):
    logging.getLogger("tpujob").info("line %d %s", n, "x" * 90)
os.write(2, b"not through logging\\n")
print("nor this", flush=True)
"""


def test_a_large_log_is_begun_anew_and_one_is_kept(tmp_path: Path) -> None:
    file = tmp_path / "backend.log"
    with file.open("ab") as out:
        subprocess.run([sys.executable, "-c", CHATTY, file], stdout=out, stderr=out, check=True)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["backend.log", "backend.log.1"]
    old, new = file.with_suffix(".log.1").read_text(), file.read_text()
    assert max(len(old), len(new)) < 21_000
    numbers = [
        int(line.split("line ")[1].split()[0])
        for line in (old + new).splitlines()
        if "line " in line
    ]
    assert numbers == [*range(numbers[0], 1000)], "no line is lost between the two"
    assert "not through logging\nnor this\n" in new
    assert file.stat().st_mode & 0o777 == 0o600


def test_a_log_that_is_not_where_standard_error_leads_is_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "backend.log"
    other.write_text("of another process")
    with (tmp_path / "err").open("ab") as err:
        subprocess.run([sys.executable, "-c", CHATTY, other], stdout=err, stderr=err, check=True)
    assert other.read_text() == "of another process"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["backend.log", "err"]
