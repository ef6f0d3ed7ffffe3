"""Small pieces of many hosts' logs become one object, written by the host that speaks: each line once or, if that host
dies at the wrong moment, twice, and never none.

The voices, links, logs and the storage are real ones; only the times are shorter.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.agent.test_voice import Rig, plan
from tests.agent.test_voice import rig as rig
from tests.contracts.blobs.storage_network import gcs
from tests.support.agent_host import JOB, until
from tests.support.records import a_job
from tpujob.agent.metadata import MetadataClient
from tpujob.agent.ship import Log, Redactor
from tpujob.agent.storage import Storage, StorageError
from tpujob.agent.voice import Pile, pile
from tpujob.api import LogGap
from tpujob.domain.model import State
from tpujob.protocol import paths, segment
from tpujob.service.logs import Logs

ENDED = replace(a_job(), id=JOB, state=State.SUCCEEDED)


class Hosts:
    """The part of two hosts' agents that ships logs."""

    def __init__(self, rig: Rig, folder: Path) -> None:
        self.rig, self._folder = rig.start(2), folder
        self.piles: list[Pile] = []
        self.logs: list[Log] = []
        for host in (0, 1):
            self.equip(host)

    def equip(self, host: int) -> Log:
        """In the place of what it had."""
        own, document = Storage(MetadataClient()), plan(host, self.rig.peers)
        together = Pile(document, own, self.rig.voices[host], 3600)
        log = Log(
            own,
            lambda n: paths.log_path(ENDED.workdir, 1, host, n),
            str(self._folder / f"spool-{host}"),
            1 << 28,
            Redactor({}),
            3600,
            together.ship,
        )
        together.asked = log.ship
        self.piles[host : host + 1] = [together]
        self.logs[host : host + 1] = [log]
        if host:
            links = self.rig.voices[0].links
            assert links
            until(lambda: links.linked() == [1], "the connection of the two")
        return log

    def objects(self) -> list[str]:
        found = self.rig.bucket.list(f"jobs/{JOB}/attempts/1/")
        return [o["name"].partition("/attempts/1/")[2] for o in found]

    def read(self) -> dict[int, list[str]]:
        """By host, as the backend reads it."""
        told: dict[int, list[str]] = {}
        with gcs(self.rig.bucket.url) as blobs:
            logs, cursor, more = Logs(blobs), "", True
            while more:
                block = logs.block(ENDED, attempt=1, cursor=cursor)
                cursor, more = block.cursor, block.more
                for line in block.data.decode().splitlines():
                    host, _, text = line.split(" ", 2)
                    told.setdefault(int(host), []).append(text)
        return told

    def holds(self, host: int) -> bool:
        """Whether host 0 has something of that host, and has not written it."""
        return any(p.host == host for p in self.piles[0]._pile)  # pyright: ignore[reportPrivateUsage]


@pytest.fixture
def hosts(rig: Rig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hosts:
    for name, seconds in {"GATHER": 0.3, "LOOK": 0.05, "TURN": 3.0}.items():
        monkeypatch.setattr(pile, name, seconds)
    return Hosts(rig, tmp_path)


def test_what_two_hosts_print_is_one_object_that_is_read_as_two_logs(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        for log in hosts.logs:
            log.note(f"line {number}", "")
    monkeypatch.setattr(pile, "GATHER", 600.0)
    hosts.piles[0].ask()
    until(lambda: hosts.holds(0) and hosts.holds(1), "what both have, with host 0")
    monkeypatch.setattr(pile, "GATHER", 0.1)
    until(hosts.objects, "the object")
    assert hosts.objects() == ["logs/00000-00001.tpujob-log"]
    assert hosts.read() == {host: [f"line {n}" for n in range(50)] for host in (0, 1)}
    hosts.logs[1].note("the last", "")
    assert hosts.logs[1].finish(60)
    assert hosts.logs[0].finish(60)
    assert hosts.read()[1][-1] == "the last"
    assert all(name.startswith("logs/00000-") for name in hosts.objects())


def test_what_the_speaker_took_along_is_written_by_the_next_one(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pile, "GATHER", 600.0)
    hosts.logs[1].note("line", "")
    hosts.logs[1].ship()
    until(lambda: hosts.holds(1), "the piece with host 0")
    hosts.rig.leave(0)
    monkeypatch.setattr(pile, "GATHER", 0.1)
    until(lambda: "logs/00001-00001.tpujob-log" in hosts.objects(), "it is written by host 1")
    assert hosts.read()[1] == ["line"]


def test_a_host_that_nobody_confirms_writes_itself_and_twice_is_once(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pile, "PATIENCE", 0.3)
    hosts.rig.bucket.away()
    on, told = hosts.rig.voices[0].on, list[Any]()
    hear = on[pile.PIECE]
    on[pile.PIECE] = lambda host, said: (hear(host, said), told.append(said))[0]
    hosts.logs[1].note("line", "")
    hosts.logs[1].ship()
    until(lambda: len(told) == 2, "the piece with host 0, as often as it is tried")
    until(lambda: not hosts.holds(1), "that host 0 forgets it, as nobody waits for it")
    hosts.rig.bucket.back()
    until(lambda: "host-1/log-00001.tpujob-log" in hosts.objects(), "host 1 has written it")
    facts = segment.SegmentFacts(1, 1, 1.0)
    said: dict[str, Any] = segment.shared([(1, facts, 9)])
    own = Storage(MetadataClient())
    own.put(paths.shared_log_path(ENDED.workdir, 1, 0, 7), b"1.0 line\n", said)
    assert hosts.read()[1] == ["line"]


@pytest.mark.parametrize("stored", [True, False], ids=["stored", "lost"])
def test_an_agent_that_is_started_anew_takes_no_number_of_lines_that_were_handed_over(
    hosts: Hosts, monkeypatch: pytest.MonkeyPatch, *, stored: bool
) -> None:
    """Host 1's agent is killed before it hears what became of its lines; the next one has more lines than it had."""
    monkeypatch.setattr(pile, "GATHER", 600.0)
    for number in range(5):
        hosts.logs[1].note(f"old {number}", "")
    hosts.logs[1].ship()
    until(lambda: hosts.holds(1), "the piece with host 0")
    hosts.rig.leave(1)
    if stored:
        monkeypatch.setattr(pile, "GATHER", 0.1)
        until(hosts.objects, "it is written by host 0")
    else:
        hosts.piles[0]._pile.clear()  # pyright: ignore[reportPrivateUsage]
        monkeypatch.setattr(pile, "GATHER", 0.1)
    hosts.rig.join(1)
    hosts.rig.say(1)
    log = hosts.equip(1)
    for number in range(8):
        log.note(f"new {number}", "")
    assert log.finish(60)
    assert hosts.logs[0].finish(60)
    kept = [f"old {n}" for n in range(5)] if stored else []
    assert hosts.read() == {1: kept + [f"new {n}" for n in range(8)]}
    with gcs(hosts.rig.bucket.url) as blobs:
        found = Logs(blobs).window(ENDED, {"attempt": 1})
    (of,) = found["hosts"]
    assert of["missing"] == ([] if stored else [LogGap(line=1, lines=5)])
    notes = [] if stored else ["Host 1: 5 lines from line 1 on are missing"]
    assert [":".join(note.split(":")[:2]) for note in found["notes"]] == notes


def test_a_doomed_host_waits_for_nobody(hosts: Hosts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pile, "GATHER", 600.0)
    hosts.logs[1].note("line", "")
    hosts.logs[1].ship()
    until(lambda: hosts.holds(1), "the piece with host 0")
    hosts.logs[1].ship(doomed=True)
    until(lambda: "host-1/log-00001.tpujob-log" in hosts.objects(), "host 1 has written it")


def test_words_that_make_no_sense_are_not_written(
    hosts: Hosts, capsys: pytest.CaptureFixture[str]
) -> None:
    links = hosts.rig.voices[1].links
    assert links
    empty = {"line": 1, "lines": 2, "at": 1.0, "data": "eJwDAAAAAAE="}
    odd = [{**empty, "at": 10**400}, {**empty, "at": float("nan")}, {**empty, "data": "\ud800"}]
    for said in ({"line": 1}, empty, *odd, 7, None):
        assert links.send(0, pile.PIECE, said)
    assert links.send(0, pile.STORED, {"no": "line"})
    hosts.logs[1].note("line", "")
    assert hosts.logs[1].finish(60)
    assert hosts.read() == {1: ["line"]}
    assert capsys.readouterr().err == "", "no link failed"


def test_how_old_an_object_is_goes_by_the_clock_of_the_storage(hosts: Hosts) -> None:
    own, sign = Storage(MetadataClient()), paths.followed_path(ENDED.workdir, 1)
    assert own.age(sign) is None
    own.put(sign, b"")
    age = own.age(sign)
    assert age is not None
    assert -2 <= age < 20
    hosts.rig.bucket.away()
    with pytest.raises(StorageError):
        own.age(sign)
    hosts.rig.bucket.back()
