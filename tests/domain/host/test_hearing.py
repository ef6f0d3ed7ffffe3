"""Whom the backend believes: whoever can write to the bucket can put anything where reports lie."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.support.records import a_job
from tpujob.domain.host import reports
from tpujob.domain.host.hearing import DISTURBS, LATE, Hearing, Known
from tpujob.domain.model import Job
from tpujob.domain.observations import Report
from tpujob.protocol import signing
from tpujob.protocol.slice_report import Word, pack

KEY = "5e" * 32
OLD = a_job()  #: its agents do not sign
JOB = replace(OLD, attempts=tuple(replace(a, signed=True) for a in OLD.attempts))
PREFIX = "gs://shed/reports/000042/2/host-"


@dataclass
class Object:
    path: str
    metadata: dict[str, str] = field(default_factory=dict)
    updated: float = 100.0
    generation: int = 1


def said(host: int = 0, seq: int = 1, **fields: Any) -> str:
    about = {"v": 1, "job": "000042", "attempt": 2, "host": host, "phase": "running", "seq": seq}
    return json.dumps({**about, **fields})


def signed(text: str, key: str = KEY) -> dict[str, str]:
    return {"report": text, "mac": signing.sign(key, "report", text)}


class Ear:
    """A backend that looks at host 0 again and again; each object is another generation."""

    def __init__(self, job: Job = JOB, key: str | None = KEY) -> None:
        self.job, self.key, self.hearing, self.generation = job, key, Hearing(2), 0

    def look(self, metadata: dict[str, str], updated: float = 100.0, now: float = 110.0) -> Report:
        self.generation += 1
        return self.again(metadata, updated, now)

    def again(self, metadata: dict[str, str], updated: float = 100.0, now: float = 110.0) -> Report:
        path = reports.reports_prefix(self.job) + "0"
        objects = [Object(path, metadata, updated, self.generation)]
        (heard,) = self.hearing.hear(self.job, objects, key=self.key, now=now)
        return heard

    @property
    def counted(self) -> tuple[int, int]:
        return self.hearing.unverified, self.hearing.replayed


def test_reports_are_those_of_the_newest_attempt_by_host() -> None:
    assert reports.reports_prefix(JOB) == PREFIX
    objects = [
        Object(PREFIX + "10", signed(said(10))),
        Object(PREFIX + "2", signed(said(2)), 103.0),
        Object(PREFIX + "3", signed(said(3, attempt=1))),
        Object(PREFIX + "4", signed(said(4, job="000041"))),
        Object(PREFIX + "5", signed(said(6))),
        Object(PREFIX + "6"),
        Object(PREFIX + "07", signed(said(7))),
        Object(PREFIX + "8/x", signed(said(8))),
        Object("gs://shed/other/host-9", signed(said(9))),
    ]
    hearing = Hearing(2)
    found = hearing.hear(JOB, objects, key=KEY, now=102.0)
    assert [(r.host, r.age) for r in found] == [(2, 0.0), (10, 2.0)]
    assert (hearing.unverified, hearing.replayed) == (4, 0)


@pytest.mark.parametrize(
    "forged",
    [
        {"report": said(seq=9, phase="exited", exit_code=0)},
        {"report": said(seq=9, phase="exited", exit_code=0), "mac": ""},
        {"report": said(seq=9, phase="exited", exit_code=0), "mac": "\udce4"},
        signed(said(seq=9, phase="exited", exit_code=0), key="6f" * 32),
        {**signed(said(seq=9)), "report": said(seq=9, phase="exited", exit_code=0)},
        {"report": said(seq=9), "mac": signing.sign(KEY, "word", said(seq=9))},
    ],
)
def test_what_is_not_signed_with_the_key_changes_nothing_and_is_counted(
    forged: dict[str, str],
) -> None:
    ear = Ear()
    true = ear.look(signed(said(step=7)))
    for _ in range(3):
        assert ear.look(forged, updated=105.0, now=120.0) == replace(true, age=20.0)
        assert ear.again(forged, updated=105.0, now=120.0).exit_code is None
    assert ear.counted == (3, 0), "each object counts once, however often it is looked at"
    assert ear.look(signed(said(seq=2, step=8)), updated=121.0, now=121.0).progress.step == 8


def test_an_older_report_that_is_put_back_is_neither_believed_nor_fresh() -> None:
    ear = Ear()
    first, last = signed(said(seq=1, step=1)), signed(said(seq=2, step=2))
    ear.look(first)
    ear.look(last, updated=105.0)
    again = ear.look(first, updated=300.0, now=300.0)
    assert (again.progress.step, again.age) == (2, 195.0)
    assert ear.look(last, updated=301.0, now=301.0).age == 196.0, "a dead host would look alive"
    assert ear.counted == (0, 2)


def test_a_report_that_is_looked_at_again_is_no_replay() -> None:
    ear = Ear()
    text = signed(said())
    ear.look(text)
    for now in (120.0, 400.0):
        assert ear.again(text, now=now).age == now - 100.0
    assert ear.counted == (0, 0)


def test_an_agent_of_before_is_understood_and_nobody_can_pass_for_one() -> None:
    plain = {"report": said(seq=0)}
    assert reports.reports_prefix(OLD) == "gs://shed/jobs/000042/attempts/2/reports/host-"
    old = Ear(OLD, key=None)
    old.look(plain)
    assert old.look({"report": said(seq=0, step=9)}).progress.step == 9
    assert old.counted == (0, 0)
    hearing = Hearing(2)
    assert hearing.hear(JOB, [Object(PREFIX + "0", plain)], key=KEY, now=100.0) == ()


# One object for many hosts -------------------------------------------------------------------------------------------


def word(host: int, seq: int, age: float = 0.0, evidence: bytes = b"", **fields: Any) -> Word:
    return Word(host, json.loads(said(host, seq, **fields)), age, evidence)


class SliceEar:
    """A backend that looks at what several hosts of a slice have written."""

    def __init__(self) -> None:
        self.hearing, self.objects, self.bodies = (
            Hearing(2),
            dict[str, Object](),
            dict[str, bytes](),
        )

    def put(
        self, by: int, *words: Word, at: float | None = None, updated: float, key: str = KEY
    ) -> Object:
        metadata, body = pack(words, by=by, at=at, key=key)
        path = f"{PREFIX}{by}"
        old = self.objects.get(path)
        made = Object(path, metadata, updated, old.generation + 1 if old else 1)
        self.objects[path], self.bodies[path] = made, body
        return made

    def put_back(self, old: Object, updated: float) -> None:
        generation = self.objects[old.path].generation + 1
        self.objects[old.path] = replace(old, generation=generation, updated=updated)

    def look(self, now: float) -> dict[int, Report]:
        """As the observer does it."""
        found = self.hearing.hear(JOB, self.objects.values(), key=KEY, now=now)
        for blob in self.hearing.unread:
            self.hearing.read(JOB, blob, self.bodies[blob.path], key=KEY)
            found = self.hearing.reports(now)
        return {r.host: r for r in found}

    def ages(self, now: float) -> dict[int, float]:
        return {host: r.age for host, r in self.look(now).items()}


def test_a_word_is_as_old_as_it_was_and_as_its_object_is() -> None:
    ear = SliceEar()
    ear.put(0, word(0, 5), word(1, 5, age=33), at=100.0, updated=101.0)
    assert ear.ages(now=110.0) == {0: 10.0, 1: 43.0}
    ear.put(0, word(0, 6), word(1, 5, age=63), at=130.0, updated=131.0)
    assert ear.ages(now=131.0) == {0: 1.0, 1: 64.0}, "host 1 has said nothing more"


def test_of_two_who_speak_for_a_host_the_newer_word_counts_whoever_wrote_last() -> None:
    ear = SliceEar()
    ear.put(0, word(0, 50), word(1, 10, age=90, step=1), at=200.0, updated=200.0)
    ear.put(1, word(1, 12, step=9), at=195.0, updated=195.0)
    for _ in range(2):
        heard = ear.look(now=210.0)
        assert (heard[1].progress.step, heard[1].age) == (9, 15.0)
        ear.put(0, word(0, 51), word(1, 10, age=100, step=1), at=209.0, updated=209.0)
    assert (ear.hearing.unverified, ear.hearing.replayed, ear.hearing.disturbed) == (0, 0, False)


def test_a_slice_object_that_is_put_back_is_old_also_for_a_backend_that_was_just_started() -> None:
    ear = SliceEar()
    first = ear.put(0, word(0, 5), at=100.0, updated=100.5)
    ear.look(now=101.0)
    last = ear.put(0, word(0, 6), at=160.0, updated=160.5)
    assert ear.ages(now=161.0) == {0: 1.0}
    for old, age in ((first, 400.0), (last, 340.0)):
        ear.put_back(old, updated=499.0)
        assert ear.ages(now=500.0) == {0: 340.0}
        assert ear.hearing.disturbed
        anew = SliceEar()
        anew.objects = {old.path: ear.objects[old.path]}
        assert anew.ages(now=500.0) == {0: age}, "the time is signed with it"
        assert (anew.hearing.replayed, anew.hearing.disturbed) == (1, True)
    assert ear.hearing.replayed == 2


def test_a_clock_of_the_storage_that_nobody_knew_is_no_reason_not_to_believe() -> None:
    ear = SliceEar()
    ear.put(0, word(0, 5), at=None, updated=100.0)
    assert ear.ages(now=130.0) == {0: 30.0}
    ear.put(0, word(0, 6), at=9999.0, updated=140.0)
    assert ear.ages(now=141.0) == {0: 1.0}, "a clock that is ahead makes nothing younger"


@pytest.mark.parametrize("wrong", [{"job": "000041"}, {"attempt": 1}, {"phase": "asleep"}])
def test_an_object_that_speaks_of_something_else_is_not_believed_at_all(
    wrong: dict[str, Any],
) -> None:
    ear = SliceEar()
    ear.put(0, word(0, 5), word(1, 5, **wrong), updated=100.0)
    assert ear.look(now=101.0) == {}
    assert ear.hearing.unverified == 1
    ear.put(0, word(0, 6), word(1, 6), updated=102.0, key="6f" * 32)
    assert ear.look(now=103.0) == {}
    assert ear.hearing.unverified == 2


def test_what_does_not_fit_into_the_metadata_is_read_once() -> None:
    ear = SliceEar()
    words = [word(h, 5, physical=f"{h:0100}") for h in range(200)]
    ear.put(0, *words, at=100.0, updated=100.0)
    heard = ear.look(now=101.0)
    assert [heard[h].physical for h in range(200)] == [f"{h:0100}" for h in range(200)]
    assert ear.hearing.unread
    words = [word(h, 6, step=h, physical=f"{h:0100}") for h in range(200)]
    ear.put(0, *words, at=160.0, updated=160.0)
    heard = ear.look(now=161.0)
    assert (heard[7].progress.step, heard[7].physical) == (7, f"{7:0100}")
    assert not ear.hearing.unread, "it is the same as before"


def test_an_object_whose_body_cannot_be_read_is_not_half_believed() -> None:
    ear = SliceEar()
    ear.put(0, *[word(h, 5, physical=f"{h:0100}") for h in range(200)], at=100.0, updated=100.0)
    body = ear.bodies[f"{PREFIX}0"]
    ear.bodies[f"{PREFIX}0"] = body.replace(b"running", b"exited")
    assert ear.look(now=101.0) == {}
    ear.bodies[f"{PREFIX}0"] = body
    assert len(ear.look(now=102.0)) == 200, "it is tried again"
    assert not ear.hearing.unverified


def test_a_forged_body_below_signed_metadata_is_counted_and_not_read_for_ever() -> None:
    ear = SliceEar()
    words = [word(h, 5, physical=f"{h:0100}") for h in range(200)]
    ear.put(0, *words, at=100.0, updated=100.0)
    signed = ear.put(1, *words, at=100.0, updated=100.0)
    ear.put_back(signed, updated=101.0)
    ear.bodies[f"{PREFIX}1"] = b"anything"
    reads = 0
    for now in range(102, 122):
        assert len(ear.look(now=now)) == 200, "what host 0 writes is believed"
        reads += sum(blob.path.endswith("1") for blob in ear.hearing.unread)
    assert (reads, ear.hearing.unverified, ear.hearing.disturbed) == (3, 1, True)


def test_what_somebody_else_has_written_long_ago_disturbs_nobody() -> None:
    ear = Ear()
    ear.look(signed(said(step=1)), updated=100.0)
    for at in (200.0, 5000.0):
        ear.look(signed(said(seq=9), key="6f" * 32), updated=at, now=at + 10)
        assert ear.hearing.disturbed
        assert ear.again({}, updated=at, now=at + DISTURBS).progress.step == 1
        assert not ear.hearing.disturbed, "its host would have written over it"


def test_a_slice_whose_summary_has_no_room_for_its_hosts_is_heard_by_its_bodies() -> None:
    """1,536 hosts in set-up."""
    ear = SliceEar()
    for at in (100.0, 130.0):
        phases = ("fetching", "running") if at == 100 else ("running", "exited")
        words = [
            word(h, int(at) + h * 7919 % 5000, age=float(h % 29), phase=phases[h % 2])
            for h in range(1536)
        ]
        ear.put(0, *words, at=at, updated=at + 1)
        heard = ear.look(now=at + 1)
        assert [heard[h].phase for h in range(1536)] == [*phases] * 768
        assert [heard[h].age for h in range(1536)] == [h % 29 + 1 for h in range(1536)]
        assert ear.hearing.unread
    assert ear.look(now=140.0)[1].age == 11
    assert not ear.hearing.unread, "once for each object"
    ear.put(0, *(word(h, 9000 + h) for h in reversed(range(1536))), at=160.0, updated=161.0)
    body = ear.bodies[f"{PREFIX}0"]
    ear.bodies[f"{PREFIX}0"] = b""
    assert ear.look(now=161.0)[1].age == 32, "the body could not be read"
    ear.bodies[f"{PREFIX}0"] = body
    assert ear.look(now=162.0)[1].age == 2
    assert (ear.hearing.unverified, ear.hearing.replayed) == (0, 0)


def test_an_attempt_that_an_agent_of_before_began_is_heard_on() -> None:
    """One object for each host, signed."""
    ear = SliceEar()
    for host in (0, 1):
        ear.objects[f"{PREFIX}{host}"] = Object(f"{PREFIX}{host}", signed(said(host, 3)))
    assert ear.ages(now=110.0) == {0: 10.0, 1: 10.0}


def test_the_evidence_of_a_host_is_from_a_body_at_least_as_new_as_its_word() -> None:
    lines = b'{"v": 1, "lines": ["out of memory"]}'
    ear = SliceEar()
    ear.put(0, word(0, 5), word(1, 5, evidence=lines), updated=100.0)
    heard, body = ear.look(now=101.0), ear.bodies[f"{PREFIX}0"]
    assert reports.evidence_of(heard[1], body, KEY) == ("out of memory",)
    assert reports.evidence_of(heard[0], body, KEY) == ()
    assert reports.evidence_of(replace(heard[1], seq=6), body, KEY) == ()
    assert reports.evidence_of(heard[1], body, "6f" * 32) == ()
    assert reports.evidence_of(heard[1], lines, KEY) == (), "not signed"


def test_evidence_counts_if_it_is_what_was_signed() -> None:
    body = b'{"v": 1, "lines": ["out of memory"]}'
    assert reports.read_evidence(body, signing.digest(body)) == ("out of memory",)
    assert reports.read_evidence(body + b" ", signing.digest(body)) == ()


def test_a_key_is_good_for_one_purpose() -> None:
    made = {
        signing.derive(b"s", *words) for words in (("a", "b"), ("ab",), ("a", "b", ""), ("b", "a"))
    }
    made.add(signing.derive(b"t", "a", "b"))
    assert len(made) == 5
    assert signing.derive(b"s", "a", "b") == signing.derive(b"s", "a", "b")


def test_each_change_of_a_phase_or_a_notice_is_a_hint_to_look() -> None:
    def hint(*phases: str, **more: Any) -> tuple[str, ...]:
        words = [word(h, 5, phase=phase, **more) for h, phase in enumerate(phases)]
        return reports.turns(pack(words, by=0, at=1.0, key=KEY)[0])

    one, both = hint("running", "exited"), hint("exited", "exited")
    assert len({hint("running", "running"), one, both, hint("running", "running", notice="x")}) == 4
    assert hint("exited", "running", step=1) == hint("exited", "running", step=2)


# Which objects are known to say all ----------------------------------------------------------------------------------


def test_the_objects_with_the_newest_words_say_all_until_the_next_one_is_overdue() -> None:
    ear = SliceEar()
    ear.put(0, word(0, 1), updated=100)
    ear.look(101)
    assert ear.hearing.known(JOB, 60) == Known(), "host 1 was not heard, and may speak for itself"
    ear.put(1, word(1, 1), updated=102)
    ear.look(103)
    both = frozenset({PREFIX + "0", PREFIX + "1"})
    assert ear.hearing.known(JOB, 60) == Known(both, 100 + 60 + LATE)
    ear.put(0, word(0, 2), word(1, 2, age=5), updated=110)
    ear.look(111)
    assert ear.hearing.known(JOB, 60) == Known(frozenset({PREFIX + "0"}), 110 + 60 + LATE)


@pytest.mark.parametrize(
    "words",
    [
        pytest.param((word(0, 2), word(1, 2, age=31)), id="host 1 speaks to somebody else"),
        pytest.param((word(0, 2), word(1, 2, age=30.5)), id="ages are told in whole seconds"),
        pytest.param((word(0, 2), word(1, 1)), id="host 1 has said nothing since"),
    ],
)
def test_a_host_that_is_silent_may_have_come_to_speak_elsewhere(words: tuple[Word, ...]) -> None:
    ear = SliceEar()
    ear.put(0, word(0, 1), word(1, 1), updated=100)
    ear.look(101)
    ear.put(0, *words, updated=200)
    ear.look(201)
    assert ear.hearing.known(JOB, 60).until < 201


def test_of_hosts_that_have_ended_no_word_is_awaited() -> None:
    ear = SliceEar()
    ear.put(0, word(0, 1), word(1, 1, phase="exited", exit_code=0), updated=100)
    ear.look(101)
    ear.put(0, word(0, 2), word(1, 1, age=300, phase="exited", exit_code=0), updated=400)
    ear.look(401)
    assert ear.hearing.known(JOB, 60).until == 400 + 60 + LATE


def test_nothing_is_known_of_another_attempt() -> None:
    ear = SliceEar()
    ear.put(0, word(0, 1), word(1, 1), updated=100)
    ear.look(101)
    again = replace(JOB, attempts=(*JOB.attempts, replace(JOB.attempts[-1], number=3)))
    assert ear.hearing.known(again, 60) == Known()
