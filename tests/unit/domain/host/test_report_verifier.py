"""Verification of reports: any writer to the bucket can put anything where reports lie."""

import json
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from tests.support.records import a_job
from tpujob.domain.host import reports
from tpujob.domain.host.report_verifier import DISTURBS, VerifiedReports, add_reports
from tpujob.domain.observations import HostReport, OutputLine
from tpujob.protocol import limits, signing
from tpujob.protocol.report import sign_report

KEY = "5e" * 32
JOB = a_job()
PREFIX = "gs://shed/reports/000042/2/host-"


@dataclass
class Object:
    path: str
    metadata: dict[str, str] = field(default_factory=dict)
    updated: float = 100.0
    generation: int = 1


def document(host: int = 0, seq: int = 1, **fields: Any) -> Any:
    about = {"v": 1, "job": "000042", "attempt": 2, "host": host, "phase": "running", "seq": seq}
    return {**about, **fields}


def signed(host: int = 0, seq: int = 1, key: str = KEY, **fields: Any) -> dict[str, str]:
    return sign_report(document(host, seq, **fields), key)[0]


class Backend:
    """Looks at host 0 again and again; each object is another generation."""

    def __init__(self) -> None:
        self.generation = 0
        self.known = VerifiedReports(2)

    def look(
        self,
        metadata: dict[str, str],
        updated: float = 100.0,
        now: float = 110.0,
        *,
        new: bool = True,
    ) -> HostReport:
        self.generation += new
        objects = [Object(PREFIX + "0", metadata, updated, self.generation)]
        self.known = add_reports(self.known, JOB, objects, key=KEY)
        self.disturbed = self.known.is_disturbed(now)
        (report,) = self.known.reports(now)
        return report

    @property
    def counted(self) -> tuple[int, int]:
        return self.known.unverified, self.known.replayed


def test_reports_are_those_of_the_newest_attempt_by_host() -> None:
    assert reports.reports_prefix(JOB) == PREFIX
    objects = [
        Object(PREFIX + "10", signed(10)),
        Object(PREFIX + "2", signed(2), 103.0),
        Object(PREFIX + "3", signed(3, attempt=1)),
        Object(PREFIX + "4", signed(4, job="000041")),
        Object(PREFIX + "5", signed(6)),
        Object(PREFIX + "6"),
        Object(PREFIX + "07", signed(7)),
        Object(PREFIX + "8/x", signed(8)),
        Object("gs://shed/other/host-9", signed(9)),
    ]
    verified = add_reports(VerifiedReports(2), JOB, objects, key=KEY)
    assert [(r.host, r.age) for r in verified.reports(102.0)] == [(2, 0.0), (10, 2.0)]
    assert (verified.unverified, verified.replayed) == (4, 0)
    assert add_reports(verified, JOB, objects, key=KEY) is verified, "nothing is new"


END = {"phase": "exited", "exit_code": 0}


@pytest.mark.parametrize(
    "forged",
    [
        {"report": json.dumps(document(seq=9, **END))},
        {"report": json.dumps(document(seq=9, **END)), "mac": ""},
        {"report": json.dumps(document(seq=9, **END)), "mac": "\udce4"},
        signed(seq=9, key="6f" * 32, **END),
        {**signed(seq=9), "report": json.dumps(document(seq=9, **END))},
        {"report": "{}", "mac": signing.sign(KEY, "word", "{}")},
    ],
)
def test_what_the_key_did_not_sign_changes_nothing_and_is_counted(forged: dict[str, str]) -> None:
    backend = Backend()
    true = backend.look(signed(step=7))
    for _ in range(3):
        assert backend.look(forged, updated=105.0, now=120.0) == replace(true, age=20.0)
        assert backend.look(forged, updated=105.0, now=120.0, new=False).exit_code is None
    assert backend.counted == (3, 0), "each object counts once, however often it is looked at"
    assert backend.look(signed(seq=2, step=8), updated=121.0, now=121.0).progress.step == 8


@pytest.mark.parametrize("at", [True, False], ids=["with its time", "of an agent of before"])
def test_an_older_report_that_is_put_back_is_neither_believed_nor_fresh(at: bool) -> None:
    backend = Backend()
    first = signed(seq=1, step=1, at=100.0 if at else None)
    last = signed(seq=2, step=2, at=105.0 if at else None)
    backend.look(first)
    backend.look(last, updated=105.0)
    assert not backend.disturbed
    again = backend.look(first, updated=300.0, now=300.0)
    assert (again.progress.step, again.age, backend.disturbed) == (2, 195.0, True)
    assert backend.look(last, updated=301.0, now=301.0).age == 196.0, "a dead host would look alive"
    assert backend.counted == (0, 2)


def test_a_report_that_is_put_back_is_old_also_for_a_backend_that_was_just_started() -> None:
    backend = Backend()
    assert backend.look(signed(at=100.0), updated=499.0, now=500.0).age == 400.0
    assert (backend.counted, backend.disturbed) == ((0, 1), True)


def test_a_report_that_is_looked_at_again_is_not_a_replay() -> None:
    backend = Backend()
    backend.look(signed(at=100.0))
    for now in (120.0, 400.0):
        assert backend.look(signed(at=100.0), now=now, new=False).age == now - 100.0
    backend.look(signed(at=100.0), updated=101.0)
    assert backend.counted == (0, 0), "the reply of the storage was lost, and it was written again"


def test_a_clock_of_the_storage_that_is_ahead_or_unknown_makes_nothing_younger() -> None:
    backend = Backend()
    assert backend.look(signed(), now=130.0).age == 30.0
    assert backend.look(signed(seq=2, at=9999.0), updated=140.0, now=141.0).age == 1.0
    assert backend.counted == (0, 0)


def test_a_forged_object_disturbs_until_its_host_would_have_written_over_it() -> None:
    backend = Backend()
    backend.look(signed(step=1))
    for at in (200.0, 5000.0):
        backend.look(signed(seq=9, key="6f" * 32), updated=at, now=at + 10)
        assert backend.disturbed
        assert backend.look({}, updated=at, now=at + DISTURBS, new=False).progress.step == 1
        assert not backend.disturbed
    backend.look(signed(seq=9, key="6f" * 32), updated=9000.0, now=9001.0)
    backend.look(signed(seq=2), updated=9002.0, now=9003.0)
    assert not backend.disturbed, "its host has written over it"


def test_evidence_counts_if_it_is_what_was_signed() -> None:
    body = (
        b'{"v": 1, "lines": [{"text": "out of memory", "ago": 2.5, "later": 1, "part": "error"}]}'
    )
    line = OutputLine("out of memory", ago=2.5, later=1, part="error")
    assert reports.read_evidence(body, signing.digest(body)) == (line,)
    assert reports.read_evidence(body + b" ", signing.digest(body)) == ()
    metadata, whole = sign_report(document(), KEY, body, b"curves")
    backend = Backend()
    report = backend.look(metadata)
    assert reports.read_evidence(whole, report.proven) == (line,)
    assert reports.read_evidence(b"x" + whole, report.proven) == ()


@pytest.mark.parametrize("odd", ["\u00e4" * 500, "plain " * 80])
def test_the_longest_report_fits_into_the_metadata(odd: str) -> None:
    verdict = {"step": 1, "host": 0, "device": odd[:300], "blame": "data", "text": odd[:300]}
    metrics = {odd[:50] + str(n): 1e-17 for n in range(limits.MAX_METRICS)}
    maintenance = {"starts": odd, "ends": odd, "latest": odd, "kind": odd, "status": odd}
    metadata = signed(
        error=odd, verdict=verdict, metrics=metrics, maintenance=maintenance, versions={"jax": odd}
    )
    assert sum(len(k) + len(v) for k, v in metadata.items()) <= limits.MAX_METADATA
    report = Backend().look(metadata)
    assert report.error.startswith(odd[:60])
    assert report.verdict
    assert (report.verdict.blame, report.verdict.step) == ("data", 1)


def test_a_key_is_good_for_one_purpose() -> None:
    made = {
        signing.derive(b"s", *words) for words in (("a", "b"), ("ab",), ("a", "b", ""), ("b", "a"))
    }
    made.add(signing.derive(b"t", "a", "b"))
    assert len(made) == 5
    assert signing.derive(b"s", "a", "b") == signing.derive(b"s", "a", "b")


def test_each_change_of_a_phase_or_a_notice_is_a_hint_to_look() -> None:
    assert reports.signals(signed(phase="exited")) != reports.signals(signed())
    assert reports.signals(signed(notice="preempted")) != reports.signals(signed())
    assert reports.signals(signed(step=1)) == reports.signals(signed(step=2))
