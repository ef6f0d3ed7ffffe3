"""Who speaks for a slice and when it is written: moment by moment, without sockets or threads."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import pytest

from tpujob.agent.voice.roll import GAP, LONGEST_TURN, PATIENCE, SILENT, SLOWEST, SOON, TURN, Roll
from tpujob.protocol import ReportDocument
from tpujob.protocol.limits import LEFT_BEHIND, SAVING

EVERY = 60.0
STALL = {"seconds": 300.0, "first": 1800.0, "looks": 5}


class Slice:
    """As one of its hosts sees it."""

    def __init__(self, host: int = 0, hosts: int = 2) -> None:
        self.now, self.seq, self.me = 1000.0, 0, host
        self.roll = Roll(host, EVERY, cast(Any, STALL), self.now)
        for other in range(hosts):
            self.say(other)

    def say(self, host: int, **facts: Any) -> None:
        self.seq += 1
        said = {"phase": "running", "seq": self.seq, **facts}
        self.roll.hear(host, cast(ReportDocument, said), b"", self.now)

    def write(self) -> list[int]:
        """The ages of what is written, if it is due."""
        if not self.roll.due(self.now):
            return []
        words = self.roll.words(self.now)
        self.roll.written(words, self.now)
        return [int(w.age) for w in words]

    def writes_in(self, seconds: float, **facts: Any) -> list[float]:
        """When it writes, while all hosts say this each second."""
        at: list[float] = []
        for n in range(int(seconds)):
            self.now += 1
            for host in (0, 1):
                self.say(host, **facts)
            at += [n + 1] if self.write() else []
        return at


def test_nothing_new_is_written_once_in_a_while() -> None:
    one = Slice()
    assert one.write() == [0, 0], "the first words at once"
    assert one.writes_in(300, step=7) == [60, 120, 180, 240, 300]


@pytest.mark.parametrize(
    "matters",
    [
        {"phase": "stopping"},
        {"phase": "exited", "exit_code": 1},
        {"notice": "preempted"},
        {"error": "no space left"},
        {"verdict": {"step": 1}},
        {"notice": "preempted", "saved_in": 3.0},
        {"idle": 300.0, "looks": 5},
        {"idle": 1800.0, "looks": 5, "program_phase": "compile"},
    ],
)
def test_what_matters_is_written_at_once_and_once(matters: dict[str, Any]) -> None:
    one = Slice()
    one.write()
    assert one.writes_in(9, **matters) == [1]


@pytest.mark.parametrize(
    "waits",
    [
        {"step": 8},
        {"idle": 299.0, "looks": 5},
        {"idle": 300.0, "looks": 4},
        {"idle": 900.0, "looks": 5, "program_phase": "compile"},
        {"metrics": {"mfu": 0.4}},
    ],
)
def test_what_does_not_matter_waits(waits: dict[str, Any]) -> None:
    one = Slice()
    one.write()
    assert set(one.writes_in(59, **waits)) <= {SOON}, "at most what is worth knowing"


def test_a_checkpoint_is_worth_knowing_and_does_not_cost_a_write_each_time() -> None:
    one = Slice()
    one.write()
    written = 0
    for n in range(600):
        one.now += 1
        one.say(1, checkpoint=n)
        one.say(0)
        written += bool(one.write())
    assert written == 600 / SOON


def test_a_change_that_comes_right_after_a_write_waits_a_second() -> None:
    one = Slice()
    one.write()
    one.now += GAP / 2
    one.say(1, phase="exited")
    assert one.write() == []
    one.now += GAP / 2
    assert one.write() == [1, 0]


def test_the_end_of_a_host_that_is_taken_away_does_not_wait() -> None:
    one = Slice()
    one.write()
    one.now += GAP / 2
    one.say(1, phase="exited", notice="preempted")
    assert one.write() == [0, 0]
    one.now += GAP / 4
    assert one.write() == []


def test_a_silent_peer_is_told_within_half_a_minute_and_so_is_its_return() -> None:
    one = Slice()
    one.write()
    at = one.now
    while one.now < at + SILENT:
        one.now += 1
        one.say(0)
        assert one.write() == []
    one.now += 1
    one.say(0)
    assert one.write() == [0, SILENT + 1]
    one.now += 1
    one.say(1)
    assert one.write() == [1, 0]


def test_one_that_has_ended_is_not_silent() -> None:
    one = Slice()
    one.say(1, phase="exited")
    one.write()
    one.now += SILENT + 1
    one.say(0)
    assert one.write() == []


def test_who_waits_for_a_host_that_ended_well_is_told_in_time() -> None:
    one = Slice()
    one.say(1, phase="exited", exit_code=0)
    one.write()
    one.now += 5
    one.say(0, idle=LEFT_BEHIND - 1, looks=9)
    assert one.write() == []
    one.say(0, idle=LEFT_BEHIND, looks=9)
    assert one.write() == [0, 5]


def test_who_waits_for_a_host_that_ended_and_left_is_told_in_time_by_the_next_one() -> None:
    """It took over from host 0, whose last word the bucket has and nobody else."""
    one = Slice(host=1, hosts=0)
    one.now += LONGEST_TURN
    one.say(1, idle=LEFT_BEHIND - 2, looks=9)
    assert one.write() == [0], "its turn to speak has come"
    one.now += 5
    one.say(1, idle=LEFT_BEHIND - 1, looks=9)
    assert one.write() == []
    one.say(1, idle=LEFT_BEHIND, looks=9)
    assert one.write() == [0]


def test_while_hosts_save_before_they_are_taken_away_it_is_told_that_they_live() -> None:
    one = Slice()
    one.write()
    assert one.writes_in(30, notice="preempted") == [1, 1 + SAVING, 1 + 2 * SAVING]


def test_a_storage_that_refuses_is_asked_ever_more_rarely_and_gets_the_newest_state() -> None:
    one = Slice()
    tries: list[float] = []
    began = one.now
    while one.now < began + 1200:
        one.now += 1
        one.say(1, step=int(one.now))
        if one.roll.due(one.now):
            tries.append(one.now)
            one.roll.failed(one.now)
    pauses = [b - a for a, b in pairwise(tries)]
    assert pauses[:4] == [1, 2, 4, 8]
    assert set(pauses[4:]) == {SLOWEST}
    one.now += SLOWEST
    assert one.write()
    assert one.roll.words(one.now)[1].said.get("step") == int(one.now - SLOWEST)


# Who speaks ----------------------------------------------------------------------------------------------------------


def test_the_lowest_host_that_is_reached_speaks() -> None:
    one = Slice(host=3)
    assert one.roll.speaker(one.now) is None, "those before it have their turn"
    one.roll.link(2, one.now)
    assert one.roll.speaker(one.now) == 2
    one.roll.link(0, one.now)
    one.roll.lost(2, one.now)
    assert one.roll.speaker(one.now) == 0
    assert not one.roll.due(one.now)


def test_hosts_take_turns_when_the_speaker_is_lost() -> None:
    for host in (1, 2, 200):
        one = Slice(host=host)
        one.roll.link(0, one.now)
        one.now += 500
        one.roll.lost(0, one.now)
        turn = min(LONGEST_TURN, TURN * host)
        assert one.roll.speaker(one.now + turn - 0.1) is None
        assert one.roll.speaker(one.now + turn) == host


def test_a_host_alone_speaks_at_once() -> None:
    assert Roll(3, EVERY, None, 50.0, alone=True).speaker(50.0) == 3


def test_a_speaker_that_does_not_write_is_not_waited_for() -> None:
    one = Slice(host=1)
    one.roll.link(0, one.now)
    one.now += EVERY + PATIENCE
    one.say(1)
    assert one.roll.speaker(one.now) == 0
    assert one.roll.speaker(one.now + 1) == 1
    one.roll.kept(one.seq, one.now + 1)
    assert one.roll.speaker(one.now + 1) == 0


def test_a_host_goes_on_to_write_until_the_speaker_does() -> None:
    """Its own writing gives the speaker no more time: the storage may refuse that host alone, and for long."""
    one = Slice(host=1)
    one.roll.link(0, one.now)
    one.now += EVERY + PATIENCE + 1
    assert one.writes_in(5, step=1) == [1]
    assert one.writes_in(3, notice="preempted") == [1], "what matters at once"
    assert one.writes_in(70, notice="preempted", step=2) != []
    one.say(1)
    one.roll.kept(one.seq, one.now)
    assert one.writes_in(100, notice="preempted", step=3) == [], "it has its time again"
    assert one.roll.upward() == 0, "it was told all the while"


def test_a_host_that_others_rely_upon_writes_for_them_whomever_it_reaches_itself() -> None:
    """They cannot reach the host that it reaches."""
    one = Slice(host=1, hosts=3)
    one.roll.link(0, one.now)
    assert one.write() == [], "host 0 writes"
    one.roll.link(2, one.now)
    assert one.write() == [0, 0, 0]
    one.now += 5
    one.say(2, notice="preempted")
    assert one.write() == [5, 5, 0], "at once"
    one.roll.lost(2, one.now)
    one.now += 5
    one.say(2, notice="preempted", phase="exited")
    assert one.write() == []


def test_an_older_word_changes_nothing() -> None:
    one = Slice()
    one.say(1, step=5)
    one.roll.hear(1, cast(ReportDocument, {"phase": "exited", "seq": 1}), b"", one.now + 5)
    assert one.roll.words(one.now)[1].said.get("step") == 5
