"""Ends of attempts, and what a program that had to stop could save."""

from dataclasses import replace

import pytest

from tests.support.records import end, host
from tpujob.contract import DONE
from tpujob.domain.failures import triage
from tpujob.domain.failures.preemption_notice import saved_words
from tpujob.domain.model import Cause, End, Outcome, Progress, Proof, Unreached
from tpujob.domain.observations import HostReport
from tpujob.protocol import Phase


def test_hosts_get_time_to_end_by_themselves_after_the_first_that_failed() -> None:
    def over(*reports: HostReport, hosts: int = 2) -> bool:
        return triage.ended(reports, hosts) is not None

    runs = HostReport(1, 1, Phase.RUNNING, age=5.0)
    assert not over(runs)
    assert not over(host(0, 0), runs), "success is of all"
    assert over(host(0, 0), host(1, 0))
    assert not over(host(0, 0), hosts=2)
    assert end(host(0, 0)).message == "exit code 0 on the only host"
    assert end(host(0, 0), host(1, 0)).message == "exit code 0 on all 2 hosts"
    assert not over(host(0, 1, age=triage.SETTLE - 1), runs)
    assert over(host(0, 1, age=triage.SETTLE), runs)
    assert over(host(0, 1, age=1), host(1, 76, age=1)), "nobody is left to wait for"
    early = {"error": "host 0: no TPU", "error_cause": Cause.PREFLIGHT}
    assert over(host(0, None, age=1, **early), runs), "the others only wait for it"
    two = (host(0, 76, age=1), host(1, 1, age=triage.SETTLE))
    assert over(*two, hosts=3), "counted from the first"


@pytest.mark.parametrize(
    ("hosts", "words"),
    [
        ([], ""),
        ([(None, None, 3.0)], ""),
        ([(9, None, None)], ""),
        ([(9, 8, None)], "not saved, 1 step lost"),
        ([(9, 7, None), (8, 5, None)], "not saved, 4 steps lost"),
        ([(9, 9, None)], "step 9 was saved"),
        ([(8, 9, None), (8, None, None)], "step 8 was saved"),
        ([(9, 9, 2.0), (9, 9, 5.4)], "saved step 9 in 5 s"),
        ([(9, None, 2.0)], ""),
    ],
)
def test_what_a_stopped_program_saved_is_reported(
    hosts: list[tuple[int | None, int | None, float | None]], words: str
) -> None:
    reports = [
        host(i, -9, progress=Progress(step=step, checkpoint=checkpoint), saved_in=took)
        for i, (step, checkpoint, took) in enumerate(hosts)
    ]
    assert saved_words(reports) == words


@pytest.mark.parametrize(
    ("code", "checkpoint", "words"),
    [
        (-9, None, "not saved, 12 steps lost"),
        (None, None, "not saved, 12 steps lost"),
        (-9, 50, "not saved, 2 steps lost"),
        (75, None, ""),  # it has saved, and does not name what
        (0, None, ""),
    ],
)
def test_work_since_a_resume_is_lost_unless_it_may_have_been_saved(
    code: int | None, checkpoint: int | None, words: str
) -> None:
    progress = Progress(step=52, resumed_from=40, checkpoint=checkpoint)
    assert saved_words([host(0, code, progress=progress)]) == words


def test_hosts_that_saved_different_steps_when_they_were_stopped_have_no_step_in_common() -> None:
    reports = [
        host(i, 75, progress=Progress(step=step, checkpoint=step), saved_in=2.0)
        for i, step in enumerate((253, 254))
    ]
    assert saved_words(reports) == "the hosts saved different steps, 253 to 254"


@pytest.mark.parametrize(
    ("notice", "code", "cause", "words"),
    [
        ("preempted", 75, Cause.PREEMPTED, "the slice was preempted; saved"),
        ("preempted", 143, Cause.PREEMPTED, "the program was stopped (exit code 143)"),
        ("preempted", -9, Cause.PREEMPTED, "the program was stopped (killed by signal 9)"),
        ("maintenance", 75, Cause.MAINTENANCE, "the slice was taken for maintenance; saved"),
        ("preempted", 1, Cause.CRASH, "host 0: exit code 1"),
        ("", 143, Cause.CRASH, "host 0: exit code 143"),
    ],
)
def test_a_notice_comes_with_the_end(notice: str, code: int, cause: Cause, words: str) -> None:
    ended = end(host(0, code, notice=notice))
    assert (ended.cause, words in ended.message) == (cause, True), ended.message


TORCHRUN = (
    "Traceback (most recent call last):",
    '  File "/opt/venv/bin/torchrun", line 10, in <module>',
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 16803 got signal: 15",
)
TRAINER = (
    "Traceback (most recent call last):",
    '  File "train.py", line 9, in <module>',
    "KeyError: 'optimizer'",
)


@pytest.mark.parametrize(
    ("notice", "lines", "cause"),
    [
        ("preempted", TORCHRUN, Cause.PREEMPTED),
        ("maintenance", TORCHRUN, Cause.MAINTENANCE),
        ("", TORCHRUN, Cause.CRASH),
        ("preempted", TRAINER, Cause.CRASH),
    ],
)
def test_an_error_about_the_signal_itself_is_an_end_by_the_notice(
    notice: str, lines: tuple[str, ...], cause: Cause
) -> None:
    """torchrun passes SIGTERM on, and then ends with 1."""
    assert end(*(host(i, 1, *lines, notice=notice) for i in range(2))).cause is cause


def test_a_failure_of_one_host_is_not_hidden_by_the_signal_on_the_other() -> None:
    ended = end(
        host(0, 1, *TORCHRUN, notice="preempted", age=9.0),
        host(1, 1, *TRAINER, notice="preempted", age=3.0),
    )
    assert (ended.cause, ended.host) == (Cause.CRASH, 1)


def told(*hosts: Progress) -> End:
    """The end of an attempt whose program exited with 0 on each host, after the first one heard a notice."""
    reports = [host(i, 0, progress=progress) for i, progress in enumerate(hosts)]
    return end(replace(reports[0], notice="preempted"), *reports[1:])


def test_a_program_that_exits_with_0_when_it_is_told_to_stop_has_not_finished() -> None:
    ended = told(Progress(step=40, steps=100, checkpoint=40), Progress(step=40, steps=100))
    assert (ended.outcome, ended.cause) == (Outcome.INTERRUPTED, Cause.PREEMPTED)
    assert ended.message == "the slice was preempted; step 40 was saved"
    silent = told(Progress(), Progress())
    assert silent.cause is Cause.PREEMPTED, "a program that tells no steps may have been stopped"
    assert "the program was stopped (exit code 0)" in silent.message


@pytest.mark.parametrize("last", [Progress(step=100, steps=100), Progress(phase=DONE)])
def test_a_program_that_was_told_to_stop_at_its_end_has_finished(last: Progress) -> None:
    assert told(Progress(), last).outcome is Outcome.SUCCEEDED


def test_three_of_many_hosts_with_a_notice_are_shown() -> None:
    hosts = [host(i, 75, notice="preempted") for i in range(5)]
    assert end(*hosts).evidence[2:] == (
        Proof(2, "the metadata server reported: preempted"),
        Proof(None, "2 more hosts got it"),
    )
    assert len(end(*hosts[:3]).evidence) == 3


CUT_OFF = Unreached(3, 0, 8476)


def test_hosts_that_cannot_reach_each_other_are_not_bad_hardware() -> None:
    """Host 0 says only who did not come; the one that got no answer knows why, wherever its number stands."""
    waits = {"error": "hosts 1, 3 did not come", "error_cause": Cause.PREFLIGHT, "late": True}
    missed = {"error": "no answer", "error_cause": Cause.SETUP, "unreached": CUT_OFF}
    ended = end(host(0, None, age=99, **waits), host(3, None, age=1, **missed))
    assert (ended.cause, ended.host, ended.unreached) == (Cause.SETUP, 3, CUT_OFF)
    assert not ended.late


def test_hosts_get_time_to_say_why_another_one_was_late() -> None:
    late = {"error": "host 1 did not come", "error_cause": Cause.PREFLIGHT, "late": True}
    others = HostReport(1, 1, Phase.PREFLIGHT, age=1.0)
    assert triage.ended([host(0, None, age=1, **late), others], 2) is None
    apart = {"error": "no answer", "error_cause": Cause.SETUP, "unreached": CUT_OFF}
    assert triage.ended([host(3, None, age=1, **apart), others], 4), "the others wait in vain"
    over = triage.ended([host(0, None, age=triage.SETTLE, **late), others], 2)
    assert over
    assert (over.cause, over.late) == (Cause.PREFLIGHT, True)


def test_a_host_that_failed_is_why_the_others_were_late() -> None:
    late = {"error": "host 1 did not come", "error_cause": Cause.PREFLIGHT, "late": True}
    failed = {"error": "set-up ended with exit code 1", "error_cause": Cause.SETUP}
    ended = end(host(0, None, age=99, **late), host(1, None, age=9, **failed))
    assert (ended.cause, ended.host) == (Cause.SETUP, 1)


def test_evidence_names_files_from_the_folder_of_the_job_and_has_no_lines_of_marks() -> None:
    folder = "/tmp/farm/host-0/home/.tpujob/attempts/000003-1/work"
    lines = (
        "Traceback (most recent call last):",
        f'  File "{folder}/prog.py", line 2, in f',
        "    return x + y",
        "           ^",
        "NameError: name 'y' is not defined",
    )
    texts = [line.text for line in end(host(0, 1, *lines)).evidence]
    assert texts == [lines[0], '  File "prog.py", line 2, in f', lines[2], lines[4]]
