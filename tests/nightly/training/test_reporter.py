"""Reports of a program whose disk is full: it continues, whatever is lost."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tpujob.contract import ProgramContext, Reporter

LINE = "going on, though not all is reported: "

pytestmark = pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="there is no /dev/full on this platform"
)


def _fill(out: Path) -> None:
    """Have each write to the files of the folder fail with ENOSPC."""
    out.mkdir()
    for name in ("events.jsonl", "heartbeat.tmp", "verdict.tmp"):
        (out / name).symlink_to("/dev/full")


def test_a_full_disk_ends_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    _fill(tmp_path / "out")
    reporter = Reporter(ProgramContext(out=str(tmp_path / "out")))
    for step in range(3):
        reporter.event("step", step=step)
    reporter.verdict(step=3, blame="model")
    assert capsys.readouterr().err == LINE + "[Errno 28] No space left on device\n"

    (tmp_path / "file").touch()
    nowhere = Reporter(ProgramContext(out=str(tmp_path / "file" / "out")))
    nowhere.event("phase", name="init")
    assert capsys.readouterr().err.startswith(LINE)


def test_a_line_that_fits_in_part_spoils_no_other(tmp_path: Path) -> None:
    """A limit on the size of files cuts a write off where it is reached, as the end of a disk does."""
    program = """
import resource, sys
from tpujob.contract import ProgramContext, Reporter
reporter = Reporter(ProgramContext(out=sys.argv[1]))
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (200, limits[1]))
for step in range(9):
    reporter.event("metric", name="m", value=step)
resource.setrlimit(resource.RLIMIT_FSIZE, limits)
reporter.event("metric", name="m", value=9)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=True
    )
    assert done.stderr.count("\n") == 1, done.stderr
    assert done.stderr.startswith(LINE)
    whole, torn, last = 0, 0, None
    for line in (tmp_path / "events.jsonl").read_bytes().splitlines():
        try:
            last = json.loads(line)["value"]
            whole += 1
        except ValueError:
            torn += 1
    assert (torn, last) == (1, 9), "what was reported when there was room again is lost"
    assert whole >= 2
