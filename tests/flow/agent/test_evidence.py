"""Evidence of a bad end: lines of the last report that show the cause, and the time until they arrive."""

import json
import os
import signal
import threading
import urllib.request
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import pytest

from tests.support.agent_host import PATIENT, Host, patient, until
from tests.support.local_server import LocalServer
from tests.support.waiting import LONG
from tpujob.agent import daemon
from tpujob.agent.upload.evidence import (
    MAX_EVIDENCE,
    TAIL_WIDTH,
    TailLine,
    first_lines,
    pick_lines,
)


def test_a_traceback_is_kept_whole_and_in_order(host: Host) -> None:
    program = "print('fine so far', flush=True)\nraise ValueError('bad \\x1b[31mshape')"
    host.run(["python3", "-c", program])
    before, first, where, *source, last = host.bucket.evidence()
    assert before == "fine so far"
    assert first == "Traceback (most recent call last):"
    assert where == '  File "<string>", line 2, in <module>'
    assert last == "ValueError: bad shape"
    assert len(source) <= 2, "Python 3.13 quotes the line, too"


def test_lines_of_the_program_alone_are_its_last_words(host: Host) -> None:
    setup = "install() { echo 'E: Unable to locate package nope' >&2; return 100; }\ninstall nope"
    report = host.run("for i in $(seq 300); do echo line $i; done; exit 1")
    assert host.bucket.evidence() == tuple(f"line {i}" for i in range(286, 301))
    assert report["error"] == ""
    report = host.run("true", attempt=2, setup=setup)
    why = "set-up ended with exit code 100 in `return 100`: E: Unable to locate package nope"
    assert report["error"] == why
    assert host.bucket.evidence(2) == ("E: Unable to locate package nope",)
    host.run("exit 3", attempt=3, setup="echo all is installed")
    assert host.bucket.evidence(3) == (), "what set-up printed is not the program's"


@pytest.mark.parametrize("code", [0, 75])
def test_a_good_end_needs_no_evidence(host: Host, code: int) -> None:
    host.run(f"echo MemoryError; exit {code}")
    assert host.bucket.evidence() == ()


def test_evidence_fits_and_keeps_what_names_the_error() -> None:
    telling = [b"MemoryError %d " % i + b"\xff\x1b" * 150 for i in range(500)]
    header = b"Traceback (most recent call last):"
    frames = [b"  File %d" % i + b"x" * 300 for i in range(200)]
    log = [*telling, header, *frames, b"KeyError: 'the end'", b"bye"]
    body = pick_lines([TailLine(line) for line in log])
    assert len(body) <= MAX_EVIDENCE
    lines = {line["text"]: line.get("part") for line in json.loads(body)["lines"]}
    assert (lines["KeyError: 'the end'"], lines["bye"]) == ("error", "more")
    assert any(text.startswith("  File 199") and part == "frame" for text, part in lines.items())
    assert json.loads(pick_lines([])) == {"v": 1, "lines": []}
    stacks = json.loads(first_lines(["x" * 500] * 99))["lines"]
    assert all(line == {"text": "x" * TAIL_WIDTH} for line in stacks)
    again = first_lines([line["text"] for line in stacks])
    assert len(again) <= MAX_EVIDENCE < len(again) + TAIL_WIDTH + 64


@pytest.fixture
def order(host: Host) -> Iterator[list[bool]]:
    """Yield, for each segment with the last words, whether the storage knew the end before; it gets them late."""
    reported, order, storage = threading.Event(), list[bool](), host.bucket.url

    class Gate(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if b"log-" in body and b"last words" in body:
                order.append(reported.wait(daemon.FLUSH_AFTER_NOTICE - 1))
            kind = {"Content-Type": self.headers["Content-Type"]}
            request = urllib.request.Request(storage + self.path, body, kind)
            with urllib.request.urlopen(request, timeout=LONG) as response:
                answer = response.read()
            if b"exited" in body and b"log-" not in body:
                reported.set()
            self.send_response(200)
            self.end_headers()
            self.wfile.write(answer)

    gate = LocalServer(Gate)
    host.env["STORAGE_EMULATOR_HOST"] = gate.url
    yield order
    host.close()
    gate.close()


def test_the_end_after_a_notice_comes_before_the_log(host: Host, order: list[bool]) -> None:
    program = PATIENT.replace("sys.exit(75)", "print('last words', flush=True); sys.exit(75)")
    pid = patient(host, program=program)["pid"]
    host.metadata.facts["preempted"] = "TRUE"
    os.kill(pid, signal.SIGTERM)
    report = host.ended()
    assert (report["notice"], report["exit_code"]) == ("preempted", 75)
    until(lambda: order, "the end of the log")
    assert all(order), "a host that is being taken away may have no time for its log first"
