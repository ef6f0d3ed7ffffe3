"""The causes of real ends of logs: how many are named exactly, and that none blames what it must not."""

import pytest

from tests.support.records import end
from tests.unit.domain.failures.log_ends import LogEnd, all_ends, report_of
from tpujob.domain.failures.evidence import is_echo
from tpujob.domain.model import Cause, End
from tpujob.domain.observations import HostReport

ENDS = all_ends()
#: least share of ends with their true cause
EXACT = 0.9
#: causes that blame a machine, another process on it, or the cloud: each costs slices, or marks a machine
COSTLY = frozenset({Cause.BAD_HOST, Cause.TPU_BUSY, Cause.PREFLIGHT, Cause.PREEMPTED})


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[LogEnd, HostReport, End]]:
    folder = tmp_path_factory.mktemp("ends")
    reports = [report_of(log_end, folder) for log_end in ENDS]
    return [(e, report, end(report)) for e, report in zip(ENDS, reports, strict=True)]


Judged = list[tuple[LogEnd, HostReport, End]]


def test_most_ends_have_their_true_cause(judged: Judged) -> None:
    wrong = [
        f"{e.name}: {j.cause} instead of {e.cause}" for e, _, j in judged if j.cause != e.cause
    ]
    assert 1 - len(wrong) / len(ENDS) >= EXACT, "\n".join(wrong)


def test_no_end_is_falsely_blamed_on_a_machine_a_neighbour_or_the_cloud(judged: Judged) -> None:
    assert not [e.name for e, _, j in judged if j.cause in COSTLY and j.cause != e.cause]


def test_the_owner_sees_the_line_that_says_most(judged: Judged) -> None:
    hidden = [f"{e.name}: {j.detail or j.message}" for e, _, j in judged if e.shown not in j.detail]
    assert not hidden, "\n".join(hidden)
    assert not [e.name for e, _, j in judged if e.message not in j.message]
    for e, _, j in judged:
        text = e.shown.partition(": ")[2]
        assert not text or text not in j.message, "the text of an error is its owner's alone"


def test_an_end_that_only_shows_the_loss_of_another_host_is_an_echo(judged: Judged) -> None:
    known = [(e, report) for e, report, _ in judged if e.echo is not None]
    assert not [e.name for e, report in known if is_echo(report.evidence) != e.echo]


def test_names_of_ends_are_unique() -> None:
    assert len({e.name for e in ENDS}) == len(ENDS) >= 80
