"""What an agent tells those who follow: each line once, before and while it goes to the bucket."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_host import AGENT, JOB, Host, agent_as_files, until
from tests.support.links import free_peers
from tpujob.agent.folders import AttemptFolder
from tpujob.agent.live import Server
from tpujob.agent.ship import Log, Redactor
from tpujob.agent.storage import StorageError
from tpujob.agent.voice.speaker import Voice
from tpujob.protocol import live
from tpujob.protocol.live import Tail


class Follower:
    """Somebody who reads what `agent live` prints."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self.tails: list[Tail] = []
        self.speaks_for: list[int] = []
        self.thread = threading.Thread(target=self._read, daemon=True)
        self.thread.start()

    def _read(self) -> None:
        assert self.process.stdout
        for line in self.process.stdout:
            said = json.loads(line)
            self.speaks_for = live.speaks_for(said) or self.speaks_for
            tail = live.read_tail(said)
            if tail:
                self.tails.append(tail)

    @property
    def texts(self) -> dict[int, str]:
        """What was told, by number. Fails if a line was told twice."""
        found: dict[int, str] = {}
        for tail in list(self.tails):
            for i, line in enumerate(tail.data.decode().splitlines()):
                assert tail.line + i not in found, f"line {tail.line + i} was told twice"
                found[tail.line + i] = line.partition(" ")[2]
        return found


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


def test_a_follower_is_told_what_the_bucket_does_not_have(host: Host) -> None:
    host.start("touch ~/up; until [ -e ~/go ]; do sleep 0.05; done; seq 50000; sleep 1000")
    until((host.home / "up").exists, "the start of the program")
    host.bucket.away()
    (host.home / "go").touch()
    with following(host) as follower:
        until(lambda: len(follower.texts) == 50_000, "every line, with no storage")
        assert follower.speaks_for == [0]
        assert follower.texts == {i: str(i) for i in range(1, 50_001)}
        host.bucket.back()
        until(lambda: follower.tails[-1].settled == 50_000, "that the bucket has them")
    assert host.bucket.log()[-1] == "50000"
    with following(host) as late:
        until(lambda: late.tails, "a word for who comes later")
        assert not late.texts, "what is in the bucket is read there"
        assert late.tails[0].settled == 50_000
    host.agent("stop", "--grace", 1)


def test_a_follower_that_does_not_read_delays_nobody(host: Host) -> None:
    host.start("until [ -e ~/go ]; do sleep 0.05; done; seq -f %0200.0f 100000; exit 3")
    folder = host.out().parent
    until((folder / "live").exists, "the socket")
    with socket.socket(socket.AF_UNIX) as deaf:
        os.symlink(folder, f"/tmp/live-{os.getpid()}")
        try:
            deaf.connect(f"/tmp/live-{os.getpid()}/live")
        finally:
            os.unlink(f"/tmp/live-{os.getpid()}")
        (host.home / "go").touch()
        assert host.ended()["exit_code"] == 3
    assert len(host.bucket.log()) == 100_000


def test_only_the_owner_of_the_host_may_follow(host: Host) -> None:
    host.start("sleep 1000")
    path = host.out().parent / "live"
    until(path.exists, "the socket")
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    if os.geteuid():
        pytest.skip("only root can be somebody else")
    probe = f"import os, socket; os.chdir({str(path.parent)!r}); os.chmod('live', 0o666)\n"
    probe += "os.chmod('.', 0o711); os.setuid(65534)\n"
    probe += "s = socket.socket(socket.AF_UNIX); s.connect('live'); print(s.recv(100))"
    said = subprocess.run(["python3", "-c", probe], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "b''", "somebody else was told"


def test_a_follower_hears_that_the_agent_ends_and_that_there_is_none(host: Host) -> None:
    pid = host.start("echo early; sleep 1000")["pid"]
    with following(host) as follower:
        until(lambda: follower.tails, "the first word")
        os.kill(pid, signal.SIGKILL)
        assert follower.process.wait(10) == 0
    assert host.agent("live", JOB, 1)["error"].startswith("nothing can be followed here")


def test_who_hangs_up_leaves_nothing_behind(host: Host, tmp_path: Path) -> None:
    host.start("sleep 1000")
    with following(host) as follower:
        until(lambda: follower.tails, "the first word")
        assert follower.process.stdin
        follower.process.stdin.close()
        assert follower.process.wait(10) == 0


class NoStorage:
    """A bucket that takes nothing while it is away, so that all lines wait."""

    away = True

    def put(self, *_: object) -> None:
        if self.away:
            raise StorageError("away", 503)

    def time(self) -> None:
        return None


def test_one_host_speaks_for_all_that_it_is_linked_to_while_somebody_follows(
    tmp_path: Path,
) -> None:
    peers = free_peers(2)
    logs: list[Log] = []
    voices: list[Voice] = []
    words: list[object] = []
    storage: Any = NoStorage()
    for host in (0, 1):
        folder = AttemptFolder(str(tmp_path / f"a{host}"))
        Path(folder.path).mkdir()
        plan: Any = {
            "host": host, "attempt": 1, "workdir": "gs://shed/jobs/000042", "report_every": 60,
            "voice": {"peers": peers},
        }  # fmt: skip
        logs.append(Log(storage, str, folder.spool, 1 << 28, Redactor({}), 300))
        voices.append(Voice(plan, storage, "0a" * 32))
        Server(folder, host, logs[host], voices[host])
    heard = voices[1].on[live.LOG]
    voices[1].on[live.LOG] = lambda host, said: (words.append(said), heard(host, said))[0]
    links = voices[0].links
    assert links
    until(lambda: links.linked() == [1], "the connection of the two")
    for number in range(3_000):
        logs[1].note(f"{number} \udcff\0" + "x" * 80)
    assert not words, "nobody asks while nobody follows"
    told: dict[int, list[int]] = {0: [], 1: []}
    with socket.socket(socket.AF_UNIX) as sock:
        sock.settimeout(20)
        sock.connect(str(tmp_path / "a0" / "live"))
        lines = sock.makefile("rb")
        assert live.speaks_for(json.loads(lines.readline())) == [0, 1]
        logs[0].note("its own")
        while len(told[1]) < 3_001 or not told[0]:
            tail = live.read_tail(json.loads(lines.readline()))
            assert tail
            told[tail.host] += range(tail.line, tail.line + tail.lines)
            if len(told[1]) == 3_000:
                logs[1].note("one more")
        lines.close()
    assert told == {0: [1], 1: list(range(1, 3_002))}, "each line once"
    voices[1].links.close()  # pyright: ignore[reportOptionalMemberAccess]
    links.close()
    storage.away = False
    assert all(log.finish(20) for log in logs)
