"""The hosts of a slice speak with one voice: who speaks, what is written when, and what happens when parts of it fail.

The voices are real ones with real sockets and a real storage; only the limits are shorter. Whole agents are below.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.support.agent_host import JOB, KEY, Bucket, Host, MetadataServer, until
from tests.support.links import free_peers, impatient_links, quick_links
from tpujob.agent import storage
from tpujob.agent.metadata import MetadataClient
from tpujob.agent.storage import Storage, StorageError
from tpujob.agent.voice import Voice, numbering, roll, speaker
from tpujob.emulator.farm.network import BlackHole, write_routes
from tpujob.protocol import Plan, ReportDocument

OTHER = "0b" * 32


def plan(host: int, peers: list[str]) -> Plan:
    about = {"v": 1, "job": JOB, "attempt": 1, "host": host, "hosts": len(peers)}
    about |= {"workdir": f"gs://shed/jobs/{JOB}", "report_every": 600, "voice": {"peers": peers}}
    return cast(Plan, about)


class Rig:
    """Voices of one slice, and what the bucket has of them."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bucket = folder, Bucket(folder / "storage")
        self.voices: dict[int, Voice] = {}
        self.peers: list[str] = []

    def start(self, hosts: int) -> Rig:
        self.peers = free_peers(hosts)
        for host in range(hosts):
            self.join(host)
            self.say(host)
        return self

    def join(self, host: int, key: str = KEY) -> Voice:
        own = Storage(MetadataClient())
        kept = str(self.folder / f"numbers-{host}")
        self.voices[host] = Voice(plan(host, self.peers), own, key, kept)
        return self.voices[host]

    def say(self, host: int, *, last: bool = False, **facts: Any) -> None:
        said = {"v": 1, "job": JOB, "attempt": 1, "host": host, "phase": "running", **facts}
        self.voices[host].put(cast(ReportDocument, said), b"", b"", last)

    def leave(self, host: int) -> None:
        """As if its process had ended: it writes nothing any more."""
        left = self.voices.pop(host)
        left._closed = True  # pyright: ignore[reportPrivateUsage]
        if left.links is not None:
            left.links.close()

    def linked(self, host: int) -> list[int]:
        """The hosts that it has a connection with."""
        links = self.voices[host].links
        return links.linked() if links is not None else []

    def spoken(self, by: int) -> dict[int, dict[str, Any]]:
        """What a host has written, by host."""
        name = self.bucket.report_name(1, by)
        if not self.bucket.list(name):
            return {}
        return {w.host: {**w.said, "age": w.age} for w in self.bucket.spoken(name).words}

    def said(self, by: int, host: int, name: str) -> Any:
        return self.spoken(by).get(host, {}).get(name)

    def writers(self) -> list[str]:
        return [o["name"][-1] for o in self.bucket.list(self.bucket.report_name()[:-1])]

    def close(self) -> None:
        for host in list(self.voices):
            self.leave(host)
        self.bucket.close()


@pytest.fixture
def rig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    quick_links(monkeypatch)
    monkeypatch.setattr(speaker, "LOOK", 0.05)
    monkeypatch.setattr(speaker, "LAST_WORD", 60.0)
    for name, seconds in {"GAP": 0.05, "TURN": 0.3, "SILENT": 1.0, "SLOWEST": 0.2}.items():
        monkeypatch.setattr(roll, name, seconds)
    made = Rig(tmp_path)
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", made.bucket.url)
    yield made
    made.close()


def test_host_0_writes_what_all_hosts_say(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("TURN", "LONGEST_TURN"):  # however late they find it
        monkeypatch.setattr(roll, name, 60.0)
    rig.start(4)
    until(lambda: sorted(rig.spoken(0)) == [0, 1, 2, 3], "all four in one object")
    rig.say(3, notice="preempted")
    until(lambda: rig.said(0, 3, "notice") == "preempted", "at once, as it matters")
    for host in range(4):
        rig.say(host, last=True, phase="exited", exit_code=host)
    assert [rig.said(0, h, "exit_code") for h in range(4)] == [0, 1, 2, 3], "a last word is kept"
    assert rig.writers() == ["0"]


def test_the_next_host_speaks_when_host_0_is_gone_and_gives_way_when_it_is_back(rig: Rig) -> None:
    rig.start(3)
    until(lambda: sorted(rig.spoken(0)) == [0, 1, 2], "all three")
    rig.leave(0)
    rig.say(2, notice="maintenance")
    until(lambda: rig.said(1, 2, "notice") == "maintenance", "host 1 writes for host 2")
    rig.join(0)
    rig.say(0)
    until(lambda: rig.said(0, 2, "notice") == "maintenance", "host 0 writes for all again")
    until(lambda: rig.linked(1) == rig.linked(2) == [0], "both tell host 0 alone")
    rig.say(1, notice="preempted")
    until(lambda: rig.said(0, 1, "notice"), "also for host 1")
    assert rig.said(1, 1, "notice") is None, "which writes no more"


def test_a_peer_that_falls_silent_is_told_and_its_word_gets_older(rig: Rig) -> None:
    rig.start(2)
    until(lambda: sorted(rig.spoken(0)) == [0, 1], "both")
    rig.leave(1)
    stop = threading.Event()

    def go_on() -> None:
        while not stop.wait(0.1):
            rig.say(0)

    going = threading.Thread(target=go_on)
    going.start()
    until(lambda: rig.said(0, 1, "age") or 0, "a word that is seconds old, as nothing else changed")
    stop.set()
    going.join()


def test_a_host_that_reaches_nobody_writes_for_itself(
    rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The emulator's network drops what goes to host 0; connections that were open are cut as well."""
    rig.start(2)
    until(lambda: sorted(rig.spoken(0)) == [0, 1], "both")
    hole, routes = BlackHole(), tmp_path / "routes"
    monkeypatch.setenv("TPUJOB_ROUTES", str(routes))
    impatient_links(monkeypatch)
    write_routes(routes, [rig.peers[0].partition(":")[0]], hole)
    rig.say(1, error="alone")
    until(lambda: rig.said(1, 1, "error") == "alone", "in an object of its own")
    write_routes(routes, [], hole)
    rig.say(1, error="together")
    until(lambda: rig.said(0, 1, "error") == "together", "in the object of host 0")
    hole.close()


def test_a_peer_with_another_key_is_not_heard(rig: Rig) -> None:
    rig.peers = free_peers(2)
    rig.join(0)
    rig.say(0)
    rig.join(1, key=OTHER)
    rig.say(1, phase="exited", exit_code=0)
    name = rig.bucket.report_name(1, 1)
    until(lambda: rig.bucket.list(name), "it writes for itself")
    with pytest.raises(AssertionError, match="is not signed"):
        rig.bucket.spoken(name)
    until(lambda: rig.spoken(0), "so does host 0")
    assert list(rig.spoken(0)) == [0]


def test_a_clock_an_hour_off_changes_neither_ages_nor_the_order(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    rig.peers = free_peers(1)
    rig.join(0)
    rig.say(0, step=1)
    until(lambda: rig.spoken(0), "the first")
    for step, off in enumerate((3600.0, -3600.0), 2):
        wrong = SimpleNamespace(time=lambda off=off: time.time() + off, monotonic=time.monotonic)
        for module in (numbering, storage):
            monkeypatch.setattr(module, "time", wrong)
        rig.say(0, step=step, error=str(step))
        until(lambda step=step: rig.said(0, 0, "step") == step, "the newest counts")
        at = rig.bucket.spoken(rig.bucket.report_name()).at
        assert at is not None
        assert abs(at - time.time()) < 5, "by the storage's clock"


def test_an_agent_that_is_started_anew_with_its_clock_put_back_is_heard(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    ahead = SimpleNamespace(time=lambda: time.time() + 3600)
    monkeypatch.setattr(numbering, "time", ahead)
    rig.start(2)
    until(lambda: sorted(rig.spoken(0)) == [0, 1], "both")
    monkeypatch.setattr(numbering, "time", time)
    rig.leave(1)
    again = rig.join(1)
    until(lambda: again.speaker() == 0, "its connection")
    rig.say(1, phase="exited", exit_code=0, last=True)
    assert rig.said(0, 1, "exit_code") == 0, "host 0 believes it, and writes it"


def test_numbers_grow_whatever_the_clock_and_the_disk_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, written, path = [1000.0], list[str](), tmp_path / "numbers"
    monkeypatch.setattr(numbering, "time", SimpleNamespace(time=lambda: now[0]))
    write = numbering.write_json
    monkeypatch.setattr(numbering, "write_json", lambda *a: (written.append(a[0]), write(*a)))
    made = numbering.Numbers(str(path))
    said = [made.next()]
    for seconds in [5.0] * 50 + [-4000.0, 0.0, 0.0]:
        now[0] += seconds
        said.append(made.next())
    assert said[:2] == [1_000_000, 1_005_000], "by the clock"
    assert len(written) == 1, "for the words of minutes"
    for _ in range(3):
        said.append(numbering.Numbers(str(path)).next())  # started anew
    assert said == sorted(set(said))
    path.write_text('{"reserved": 9223372036854775807}')
    now[0] = 9_000.0
    assert numbering.Numbers(str(path)).next() == 9_000_000, "no agent has written that"
    lost = numbering.Numbers(str(tmp_path / "no" / "folder"))
    assert lost.next() < lost.next(), "a disk that takes nothing"


def test_a_bucket_that_refuses_for_long_loses_nothing(rig: Rig) -> None:
    rig.start(2)
    until(lambda: sorted(rig.spoken(0)) == [0, 1], "both")
    rig.bucket.away()
    for step in range(30):
        rig.say(1, step=step, notice="preempted")
    rig.say(1, phase="exited", exit_code=75, step=30)
    time.sleep(0.5)  # some tries fail
    rig.bucket.back()
    until(lambda: rig.said(0, 1, "exit_code") == 75, "the newest state")
    assert rig.said(0, 1, "step") == 30


def test_a_last_word_that_cannot_be_written_is_said_to_be_not(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speaker, "LAST_WORD", 0.3)
    rig.start(1)
    until(lambda: rig.spoken(0), "the first")
    rig.bucket.away()
    with pytest.raises(StorageError, match="not written"):
        rig.say(0, last=True, phase="exited", exit_code=0)
    rig.bucket.back()
    monkeypatch.setattr(speaker, "LAST_WORD", 60.0)
    rig.say(0, last=True, phase="exited", exit_code=0)
    assert rig.said(0, 0, "exit_code") == 0


#: what no agent says: it would fail where the reports of all are put together
ODD: list[tuple[str, Any]] = [
    ("evidence", "\ud800"),
    ("evidence", None),
    *(
        ("report", {"host": 1, "phase": "running", **odd})
        for odd in (
            {"seq": "2"}, {"seq": 2**64}, {"seq": None}, {"seq": True}, {"seq": float("nan")},
            {"seq": 2**62, "host": 0}, {"seq": 2**62, "phase": None}, {"seq": 2**62, "phase": {}},
            {"seq": 2**62, "looks": "9"}, {"seq": 2**62, "idle": "9"},
        )
    ),
    ("report", []),
    ("report", None),
    ("written", "9"),
    ("written", True),
]  # fmt: skip


def test_odd_words_of_a_host_harm_neither_its_link_nor_what_is_written(
    rig: Rig, capsys: pytest.CaptureFixture[str]
) -> None:
    rig.start(2)
    until(lambda: sorted(rig.spoken(0)) == [0, 1], "both")
    links = rig.voices[1].links
    assert links
    for kind, said in ODD:
        assert links.send(0, kind, said)
    rig.say(1, notice="preempted")
    until(
        lambda: rig.said(0, 1, "notice") == "preempted", "the next word, which is as it should be"
    )
    assert capsys.readouterr().err == "", "nothing failed on the way"


# Whole agents --------------------------------------------------------------------------------------------------------


@pytest.fixture
def slice(host: Host, tmp_path: Path, metadata: MetadataServer) -> Iterator[list[Host]]:
    others = [Host(tmp_path / f"host-{n}", host.bucket, metadata) for n in (1, 2, 3)]
    yield [host, *others]
    for other in others:
        other.close()


@pytest.fixture
def metadata(host: Host) -> MetadataServer:
    return host.metadata


GO = "until [ -e $HOME/go ]; do sleep 0.1; done"


def test_four_agents_report_through_host_0_and_through_host_1_when_its_agent_is_killed(
    slice: list[Host],
) -> None:
    peers, bucket, pids = free_peers(4), slice[0].bucket, dict[int, int]()
    for n, host in enumerate(slice):
        answer = host.start(GO, host=n, hosts=4, voice={"peers": peers}, report_every=600)
        pids[n] = answer["pid"]

    def phases(by: int) -> list[str]:
        name = bucket.report_name(1, by)
        words = bucket.spoken(name).words if bucket.list(name) else []
        return [f"{w.host} {w.said.get('phase')}" for w in words]

    until(lambda: phases(0) == [f"{n} running" for n in range(4)], "all four by host 0")
    os.kill(pids[0], signal.SIGKILL)
    alive = [f"{n} running" for n in (1, 2, 3)]
    until(lambda: phases(1) == alive, "that host 1 tells for those that are left")
    (slice[2].home / "go").touch()
    until(lambda: "2 exited" in phases(1), "the end of host 2, told by host 1")
    assert "0 running" in phases(0), "what host 0 said last is still there"
    for n in (1, 3):
        (slice[n].home / "go").touch()
    until(lambda: phases(1) == [f"{n} exited" for n in (1, 2, 3)], "the ends of all that live")
