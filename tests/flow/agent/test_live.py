"""Messages to followers: each line once, before and while it goes to the bucket."""

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.flow.agent.gate import open_gate, start_at_gate
from tests.support.agent_host import AGENT, JOB, Host, agent_as_files, until
from tests.support.waiting import LONG
from tpujob.protocol import live
from tpujob.protocol.live import TailMessage


class Follower:
    """A reader of the output of `agent live`."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.tails: list[TailMessage] = []
        self.hosts: list[int] = []
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            message = json.loads(line)
            self.hosts = live.read_hosts(message) or self.hosts
            tail = live.read_tail(message)
            if tail:
                self.tails.append(tail)

    @property
    def texts(self) -> dict[int, str]:
        """Return the received lines by number. Fails if a line was sent twice."""
        lines: dict[int, str] = {}
        for tail in list(self.tails):
            for i, line in enumerate(tail.data.decode().splitlines()):
                assert tail.line + i not in lines, f"line {tail.line + i} was sent twice"
                lines[tail.line + i] = line.partition(" ")[2]
        return lines


@contextmanager
def following(host: Host) -> Iterator[Follower]:
    words = [*AGENT, str(agent_as_files()), "live", JOB, "1"]
    process = subprocess.Popen(
        words, env=host.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    follower = Follower(process)
    try:
        yield follower
    finally:
        process.kill()
        process.wait()
        follower.thread.join()
        for pipe in (process.stdin, process.stdout, process.stderr):
            assert pipe
            pipe.close()


def test_a_follower_gets_the_lines_that_the_bucket_does_not_have(host: Host) -> None:
    start_at_gate(host, "seq 50000; sleep 1000")
    host.bucket.away()
    open_gate(host)
    with following(host) as follower:
        until(lambda: len(follower.texts) == 50_000, "every line, with no storage")
        assert follower.hosts == [0]
        assert follower.texts == {i: str(i) for i in range(1, 50_001)}
        host.bucket.back()
        until(lambda: follower.tails[-1].settled == 50_000, "that the bucket has them")
    assert host.bucket.log()[-1] == "50000"
    with following(host) as late:
        until(lambda: late.tails, "the first message to a later follower")
        assert not late.texts, "what is in the bucket is read there"
        assert late.tails[0].settled == 50_000
    host.agent("stop", "--grace", 1)


def test_a_follower_that_does_not_read_delays_no_program(host: Host) -> None:
    start_at_gate(host, "seq -f %0200.0f 100000; exit 3")
    folder = host.out().parent
    until((folder / "live").exists, "the socket")
    with socket.socket(socket.AF_UNIX) as deaf:
        os.symlink(folder, f"/tmp/live-{os.getpid()}")
        try:
            deaf.connect(f"/tmp/live-{os.getpid()}/live")
        finally:
            os.unlink(f"/tmp/live-{os.getpid()}")
        open_gate(host)
        assert host.ended()["exit_code"] == 3
    assert len(host.bucket.log()) == 100_000


def test_only_the_owner_of_the_host_may_follow(host: Host) -> None:
    host.start("sleep 1000")
    path = host.out().parent / "live"
    until(path.exists, "the socket")
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    if os.geteuid():
        pytest.skip("only root can become another user")
    probe = f"import os, socket; os.chdir({str(path.parent)!r}); os.chmod('live', 0o666)\n"
    probe += "os.chmod('.', 0o711); os.setuid(65534)\n"
    probe += "s = socket.socket(socket.AF_UNIX); s.connect('live'); print(s.recv(100))"
    result = subprocess.run(["python3", "-c", probe], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "b''", "another user got a message"


def test_a_follower_learns_that_the_agent_has_ended_or_is_absent(host: Host) -> None:
    pid = host.start("echo early; sleep 1000")["pid"]
    host.phase("running")
    with following(host) as follower:
        until(lambda: follower.tails, "the first message")
        os.kill(pid, signal.SIGKILL)
        assert follower.process.wait(LONG) == 0
    assert host.agent("live", JOB, 1)["error"].startswith("nothing can be followed here")


def test_a_follower_that_hangs_up_leaves_no_process(host: Host, tmp_path: Path) -> None:
    host.start("sleep 1000")
    host.phase("running")
    with following(host) as follower:
        until(lambda: follower.tails, "the first message")
        assert follower.process.stdin
        follower.process.stdin.close()
        assert follower.process.wait(LONG) == 0
