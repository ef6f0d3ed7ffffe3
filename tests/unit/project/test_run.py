"""The last line of a test run: what it counts, and that nothing which went wrong is missing from it."""

import os
import signal
import sys
from pathlib import Path

import pytest

from tests import run
from tests.run import PYTEST, Stage, main

GOOD = "def test_one(): pass\ndef test_two(): pass\n"
MIXED = """
import pytest

@pytest.fixture
def broken():
    raise OSError("no such machine")

def test_that_passes(): pass
def test_that_fails(): assert False, "as it must"
def test_whose_fixture_fails(broken): pass
def test_that_is_skipped(): pytest.skip("NOT TESTED: java is not here")
"""


@pytest.fixture(autouse=True)
def _plain_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stages of these tests load no plugins, which takes longer than they do."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")


def stage(folder: Path, name: str, text: str) -> Stage:
    file = folder / f"test_{name}.py"
    file.write_text(text)
    own = ("-c", "/dev/null", "--rootdir", str(folder), "-p", "no:cacheprovider")
    return Stage(name, (*PYTEST, *own, str(file)))


def test_the_last_line_counts_stages(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    first, second = (stage(tmp_path, name, GOOD) for name in ("first", "second"))
    assert main((first,), (second,)) == 0
    lines = capfd.readouterr().out.splitlines()
    assert lines[-1] == "4 passed, 0 failed"
    assert {line.split(" |")[0].strip() for line in lines[:-1]} == {"first", "second"}


def test_stages_after_a_failure_run(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main((stage(tmp_path, "mixed", MIXED), stage(tmp_path, "good", GOOD))) == 1
    *lines, last = capfd.readouterr().out.splitlines()
    assert last == "3 passed, 2 failed, 1 skipped"
    assert "SKIPPED, 1 times: NOT TESTED: java is not here" in lines
    assert {
        "FAILED: test_mixed::test_that_fails",
        "FAILED: test_mixed::test_whose_fixture_fails",
    } <= {*lines}
    ends = "\n".join(lines[lines.index("FAILED: test_mixed::test_that_fails") :])
    assert "AssertionError: as it must" in ends, "the end of a log says why"
    assert "OSError: no such machine" in ends


def test_a_missing_report_is_a_failure(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    codes = ("raise SystemExit(3)", "import os; os.kill(os.getpid(), 9)", "pass")
    broken = [Stage(f"broken {n}", (sys.executable, "-c", code)) for n, code in enumerate(codes)]
    checks = [
        Stage(f"check {code}", (sys.executable, "-c", f"raise SystemExit({code})"), reports=False)
        for code in (0, 1)
    ]
    wrong = stage(tmp_path, "wrong", "import nothing_of_that_name")
    assert main((checks[0],)) == 0
    assert main((*broken, *checks, wrong, stage(tmp_path, "good", GOOD))) == 1
    *lines, last = capfd.readouterr().out.splitlines()
    assert last == "3 passed, 5 failed"
    for n, code in enumerate((3, -9, 0)):
        assert f"FAILED: stage broken {n} ended with exit code {code}" in lines


def test_an_endless_stage_has_failed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = GOOD + "import threading\nthreading.Thread(target=threading.Event().wait).start()\n"
    assert main((stage(tmp_path, "endless", text),), most=5) == 1
    *lines, last = capfd.readouterr().out.splitlines()
    assert last.endswith("1 failed")
    assert "FAILED: stage endless ended with exit code -9" in lines


def test_a_stage_ends_though_a_process_of_its_own_holds_its_output(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "WAIT", 3.0)  # of a busy machine
    code = "import subprocess; print(subprocess.Popen(['sleep', '60'], start_new_session=True).pid)"
    leaves = Stage("leaves", (sys.executable, "-c", code), reports=False)
    assert main((leaves,)) == 0
    output, *_, last = capfd.readouterr().out.splitlines()
    os.kill(int(output.split("|")[1]), signal.SIGKILL)
    assert last == "1 passed, 0 failed"


UNSTEADY = """
import pathlib

def test_that_fails_once():
    mark = pathlib.Path("mark")
    before = mark.exists()
    mark.touch()
    assert before, "the machine was busy"
"""


def test_a_test_that_passes_alone_is_counted_and_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(run.UNTIL, "0")
    assert main((stage(tmp_path, "unsteady", UNSTEADY),)) == 0
    out = capfd.readouterr().out
    assert "FAILED, THEN PASSED ALONE: test_unsteady::test_that_fails_once" in out
    assert "the machine was busy" in out
    assert out.splitlines()[-1] == "1 passed, 0 failed"

    never = stage(tmp_path, "never", "def test_that_fails(): assert False")
    assert main((never,)) == 1, "what fails again has failed"
    (tmp_path / "mark").unlink()
    monkeypatch.setattr(run, "AGAIN", 0)
    assert main((stage(tmp_path, "unsteady", UNSTEADY),)) == 1, "many failures are no accident"
    assert capfd.readouterr().out.splitlines()[-1] == "0 passed, 1 failed"
