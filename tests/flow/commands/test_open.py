"""`tpujob open`: where the page is, for a backend here, at a socket and elsewhere; and until when."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import Tpujob, stand_in, withdraw
from tests.support.http import ask
from tests.support.scripted import ScriptedJobs, job_view, on_socket, scripted_app
from tests.support.signed_in import signed_in
from tests.support.waiting import LONG, until
from tpujob.web.security.browser import Sessions

PAGE = "http://127.0.0.1:23456"
KEEP = "import pathlib, sys; pathlib.Path(sys.argv[1]).write_text(sys.argv[2])"


@pytest.fixture(autouse=True)
def no_screen(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DISPLAY", "WAYLAND_DISPLAY", "SSH_CONNECTION", "BROWSER", "TPUJOB_PAGE"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def sessions() -> Sessions:
    return Sessions()


@pytest.fixture
def record(tpujob_state: Path, sessions: Sessions) -> Iterator[dict[str, object]]:
    """Write the ready file of a backend on this machine that has a page."""
    with on_socket(scripted_app(ScriptedJobs(job_view()), sessions=sessions)) as url:
        yield stand_in(tpujob_state, "backend", url=url, page=PAGE, page_needs_code=False)


def say(tpujob: Tpujob, record: dict[str, object], **changes: object) -> None:
    (tpujob.state / "run" / "backend.json").write_text(json.dumps(record | changes))


def test_the_address_is_printed_where_there_is_no_browser(
    tpujob: Tpujob, record: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    result = tpujob("open")
    assert (result.out, result.err) == (f"{PAGE}/\n", "")
    assert tpujob("open", "digits").out == f"{PAGE}/jobs/000042\n"
    assert "no job is called '77'" in tpujob("open", "77", code=3).err
    monkeypatch.setenv("SSH_CONNECTION", "10.0.0.1 5000 10.0.0.2 22")
    result = tpujob("open", "42")
    assert result.out == f"{PAGE}/jobs/000042\n", "an address for scripts, and nothing else"
    assert re.search(r"ssh -N -L 23456:127\.0\.0\.1:23456 ada@\S+$", result.err, re.M)


def test_a_browser_is_opened_where_there_is_one(
    tpujob: Tpujob, record: dict[str, object], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    opened = tmp_path / "opened"
    (tmp_path / "browser.py").write_text(KEEP)
    monkeypatch.setenv("DISPLAY", ":0")
    monkeypatch.setenv("BROWSER", f"{sys.executable} {tmp_path}/browser.py {opened} %s")
    out, err = tpujob.popen("open", "42").communicate(timeout=LONG)
    assert out == f"Opened in the browser: {PAGE}/jobs/000042\n", err
    assert opened.read_text() == f"{PAGE}/jobs/000042"
    opened.unlink()
    assert tpujob("open", "42", "--print").out == f"{PAGE}/jobs/000042\n"
    assert not opened.exists()


def test_a_code_is_in_the_address_where_one_is_needed_or_asked_for(
    tpujob: Tpujob, record: dict[str, object], sessions: Sessions
) -> None:
    output = tpujob("open", "42", "--code").out
    match = re.fullmatch(rf"{PAGE}/enter/([\w-]{{43}})\?to=/jobs/000042\n", output)
    assert match, output
    assert sessions.enter(match[1])
    say(tpujob, record, page_needs_code=True)
    match = re.fullmatch(rf"{PAGE}/enter/([\w-]{{43}})\n", tpujob("open").out)
    assert match
    assert sessions.enter(match[1])
    assert tpujob("status").out.endswith("\nPage: tpujob open\n"), "codes are not given away"


def test_the_page_can_be_switched_off(
    tpujob: Tpujob, record: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    say(tpujob, record, page="")
    assert "it was started without" in tpujob("open", code=2).err
    assert "page" not in tpujob("status").out
    for setting, message in (("off", "TPUJOB_PAGE is off"), ("8080", "TPUJOB_PAGE is '8080'")):
        monkeypatch.setenv("TPUJOB_PAGE", setting)
        assert message in tpujob("open", code=2).err
    monkeypatch.delenv("TPUJOB_PAGE")


def test_commands_name_the_page(tpujob: Tpujob, record: dict[str, object], job_file: Path) -> None:
    assert tpujob("status").out.endswith(f"\nPage: {PAGE}/\n")
    pages = {process["name"]: process["page"] for process in tpujob("status", "--json").json}
    assert pages == {"farm": "", "emulator": "", "backend": PAGE}
    assert f"\n  Page      {PAGE}/jobs/000002\n" in tpujob("create", str(job_file)).out
    assert "page" not in tpujob("create", str(job_file), "--json").out


# Elsewhere -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def node(tpujob: Tpujob, url: str, api: ScriptedJobs) -> ScriptedJobs:
    """The backend of a login node, which this user has chosen."""
    withdraw(tpujob.state, "backend")
    tpujob("use", url, "--name", "node")
    return api


def answers(url: str) -> bool:
    try:
        return bool(ask(url, "GET", "/health"))
    except ConnectionError:
        return False


def line_of(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_page_of_a_login_node_is_there_until_ctrl_c(tpujob: Tpujob, node: ScriptedJobs) -> None:
    process = tpujob.popen("open", "42", "--print")
    address = line_of(process)
    match = re.fullmatch(r"(http://127\.0\.0\.1:(\d+))(/jobs/000042)", address)
    assert match, process.communicate()
    status, _, body = ask(match[1], "GET", "/jobs.json")
    assert (status, [row["id"] for row in body["rows"]]) == (200, ["000042"])
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=LONG)
    assert (process.returncode, "Traceback" in err) == (0, False), err
    assert "until Ctrl-C" in err
    assert not answers(match[1])
    again = tpujob.popen("open", "--code")
    entered = re.fullmatch(rf"{match[1]}(/enter/[\w-]{{43}})", line_of(again))
    assert entered, "at the port of the last time, and with a code"
    assert ask(match[1], "GET", entered[1])[0] == 303
    again.kill()
    until(lambda: not answers(match[1]), "the server that it started has ended")


def test_the_user_of_a_login_node_sees_its_page(tpujob: Tpujob, record: dict[str, object]) -> None:
    say(tpujob, record, page="", shared=True)
    assert tpujob("status").out.endswith("\nPage: tpujob open\n")
    process = tpujob.popen("open", "--print")
    assert ask(line_of(process).rstrip("/"), "GET", "/jobs.json")[0] == 200
    process.send_signal(signal.SIGINT)
    assert process.wait(LONG) == 0


def test_only_behind_iap_the_browser_signs_in(tpujob: Tpujob, edge: str) -> None:
    tpujob("use", edge, "--name", "prod")
    assert "tpujob login" in tpujob("open", code=77).err
    assert tpujob("status").out.endswith("Page: tpujob open\n")
    client = "1-x.apps.googleusercontent.com"
    tpujob("use", edge, "--door", "iap", "--client-id", client, "--client-secret", "s")
    signed_in(tpujob.state, "prod", edge)
    file = tpujob.state / "contexts" / "prod" / "sign-in.json"
    token = json.loads(file.read_text()) | {"client_id": client}
    file.write_text(json.dumps(token))
    assert tpujob("open").out == f"{edge}/\n"
    assert tpujob("open", "digits").out == f"{edge}/jobs/000042\n"
    assert tpujob("status").out.endswith(f"Page: {edge}/\n")
