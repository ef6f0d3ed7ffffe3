"""Behaviour that shows only in a process: Ctrl-C, closed pipes, terminals, completion."""

import codecs
import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.commands import Tpujob
from tests.support.scripted import ScriptedJobs, action, job_view, log_line
from tests.support.waiting import LONG, until
from tpujob.api import LogPage


class Terminal:
    """A command on a pseudo terminal; `text` is what it has shown so far."""

    def __init__(self, tpujob: Tpujob, *words: str) -> None:
        self.master, slave = pty.openpty()
        self.process = tpujob.popen(
            *words, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )
        os.close(slave)
        self.text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")()

    def shows(self, text: str) -> None:
        until(lambda: self._read() and text in self.text, lambda: f"{text!r} in\n{self.text}")

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def ends(self, code: int) -> str:
        until(
            lambda: self._read() and self.process.poll() is not None,
            lambda: f"its end\n{self.text}",
        )
        self._read()
        os.close(self.master)
        assert self.process.returncode == code, self.text
        return self.text

    def _read(self) -> bool:
        while select.select([self.master], [], [], 0)[0]:
            try:
                self.text += self._decoder.decode(os.read(self.master, 65536))
            except OSError:  # the other end is closed
                break
        return True


@pytest.mark.parametrize("words", ["wait 42", "logs -f 42", "events -f 42", "create FILE --follow"])
def test_ctrl_c_says_that_the_job_goes_on(
    tpujob: Tpujob, api: ScriptedJobs, job_file: Path, words: str
) -> None:
    api.pages = [LogPage(lines=[], cursor="", done=False)] * 1000
    command, *rest = words.replace("FILE", str(job_file)).split()
    process = tpujob.popen(command, *rest)
    if command == "logs":
        until(lambda: api.named("log_block"), "the log is read")
    else:
        assert api.polling.acquire(timeout=LONG)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=LONG)
    job = "000002" if command == "create" else "000042"
    again = {"wait": f"wait {job}", "events": f"events {job} -f"}.get(command, f"logs {job} -f")
    assert process.returncode == 130
    assert f"Job {job} continues" in err
    assert f"follow it again: tpujob {again}\n" in err
    assert "Traceback" not in out + err
    assert api.named("cancel") == []


def test_ctrl_c_while_a_job_is_submitted_tells_how_to_repeat_safely(
    tpujob: Tpujob, api: ScriptedJobs, job_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow = api.create

    def create(*args: object, **kwargs: object) -> object:
        job = slow(*args, **kwargs)  # type: ignore[arg-type]
        api.changed.wait(30)  # the reply does not come before Ctrl-C
        return job

    monkeypatch.setattr(api, "create", create)
    process = tpujob.popen("create", str(job_file))
    until(lambda: api.named("create"), "the job is submitted")
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LONG)
    api.changed.set()
    assert process.returncode == 130
    assert re.search(r"\n  tpujob create .* --key \w+\n", err), err


@pytest.mark.parametrize("words", ["list --json", "logs 42"])
def test_a_full_disk_is_reported(tpujob: Tpujob, api: ScriptedJobs, words: str) -> None:
    api.pages = [LogPage(lines=[log_line(0, "x" * 500)] * 100, cursor="", done=True)]
    with open("/dev/full", "w") as full:
        process = tpujob.popen(*words.split(), stdout=full)
        _, err = process.communicate(timeout=LONG)
    message = "the output cannot be written: No space left on device"
    reported = json.loads(err)["error"]["message"] if "--json" in words else err
    assert reported == (message if "--json" in words else f"tpujob: {message}\n")
    assert process.returncode == 1


def test_a_closed_pipe_is_quiet(tpujob: Tpujob, api: ScriptedJobs) -> None:
    api.pages = [LogPage(lines=[log_line(0, "x" * 100)] * 5000, cursor="", done=False)] * 1000
    reader, writer = os.pipe()
    process = tpujob.popen("logs", "42", stdout=writer)
    os.close(writer)
    assert os.read(reader, 10).startswith(b"0| xxx")
    os.close(reader)
    _, err = process.communicate(timeout=LONG)
    assert (process.returncode, err) == (141, "")


def test_a_person_is_asked_before_a_slice_is_given_back(tpujob: Tpujob, api: ScriptedJobs) -> None:
    gives_back = action("delete", "gives tj-000042-1 back", "$7.37/h until the slice is gone")
    api.jobs["000042"] = job_view(actions=[gives_back])
    for answer, code in (("n\n", 1), ("", 130), ("y\n", 0)):
        terminal = Terminal(tpujob, "delete", "digits")
        terminal.shows("[y/N]")
        assert api.named("delete") == []
        if answer:
            terminal.type(answer)
        else:
            os.kill(terminal.process.pid, signal.SIGINT)
        assert "$7.37/h" in terminal.ends(code)
    assert api.named("delete") == [{"job": "000042"}]
    api.jobs["000042"] = job_view(state="cancelled", slices=[])
    assert "[y/N]" not in Terminal(tpujob, "delete", "42").ends(0), "nothing can be lost"


def test_colour_is_for_terminals_alone(tpujob: Tpujob, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "\x1b[32m" in Terminal(tpujob, "list").ends(0)
    assert "\x1b[" not in tpujob("list").out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in Terminal(tpujob, "list").ends(0)


def test_list_watch_redraws_and_restores_the_terminal(tpujob: Tpujob, api: ScriptedJobs) -> None:
    watching = Terminal(tpujob, "list", "--watch")
    watching.shows("480/600")
    api.change(job_view(step=599))
    watching.shows("599/600")
    os.kill(watching.process.pid, signal.SIGINT)
    text = watching.ends(130)
    assert text.count("\x1b[?1049h") == text.count("\x1b[?1049l") == 1
    assert text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l"), "the cursor is listed again"


def test_list_watch_in_a_pipe_prints_at_each_change(tpujob: Tpujob, api: ScriptedJobs) -> None:
    process = tpujob.popen("list", "--watch", "--json")
    assert process.stdout
    assert json.loads(process.stdout.readline())[0]["step"] == 480
    api.change(job_view(step=599))
    assert json.loads(process.stdout.readline())[0]["step"] == 599
    process.send_signal(signal.SIGINT)
    assert process.wait(LONG) == 130


def test_create_follow_has_a_live_panel(tpujob: Tpujob, api: ScriptedJobs, job_file: Path) -> None:
    done = job_view("000002", state="succeeded", message="all done")
    api.script = [job_view("000002"), job_view("000002"), done]
    output = Terminal(tpujob, "create", str(job_file), "--follow").ends(0)
    text = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", output)
    assert "╭─ job 000002" in text
    assert "480/600" in text
    assert "Job 000002 (digits): succeeded" in text


def test_completion_in_a_shell(tpujob: Tpujob, tmp_path: Path) -> None:
    named = os.environ | {"_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION": "1"}
    script = tpujob.popen("--show-completion", "bash", env=named).communicate(timeout=LONG)[0]
    assert "_TPUJOB_COMPLETE" in script
    env = os.environ | {
        "_TPUJOB_COMPLETE": "complete_bash",
        "COMP_WORDS": "tpujob show 0",
        "COMP_CWORD": "2",
    }
    out = tpujob.popen(env=env).communicate(timeout=LONG)[0]
    assert out.split() == ["000042"]
    home = named | {"HOME": str(tmp_path)}
    installed = tpujob.popen("--install-completion", "bash", env=home)
    assert "installed" in installed.communicate(timeout=LONG)[0]
    assert any("tpujob" in p.name for p in (tmp_path / ".bash_completions").iterdir())


def test_commands_pay_only_for_what_they_use(tpujob: Tpujob) -> None:
    """A heavy import on the common path costs every command; `make bench` has the figures."""
    heavy = "pydantic yaml rich google fabric paramiko fastapi jax asyncssh"
    code = (
        "import sys; from tpujob.cli.app import run; run(sys.argv[1:]);"
        " print(*{m.partition('.')[0] for m in sys.modules}, file=sys.stderr)"
    )
    for words in ("--help", "list", "show 42", "logs 42", "cancel 42"):
        command = [sys.executable, "-c", code, *words.split()]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert not {*heavy.split()} & {*done.stderr.split()}, f"tpujob {words}"
