"""Hangs, hosts that are left behind, hosts that fell silent: time and count, and never one signal alone."""

from dataclasses import replace

from tpujob.domain.failures import stall
from tpujob.domain.model import Cause, Outcome, Progress, Proof
from tpujob.domain.observations import HostReport, OutputLine, Silence

STALL = 900.0


def running(host: int, idle: float, *, step: int | None = 7, looks: int = 100) -> HostReport:
    progress = Progress(step=step, phase="train")
    return HostReport(host, 1, "running", age=5.0, idle=idle, looks=looks, progress=progress)


def _stack(*lines: str) -> tuple[OutputLine, ...]:
    return tuple(OutputLine(line) for line in lines)


def test_a_program_without_progress_on_any_host_hangs() -> None:
    end = stall.hung(STALL, (running(0, 1000), running(1, 950)))
    assert (end.outcome, end.cause) == (Outcome.FAILED, Cause.HANG)
    assert "no progress on any host for 16 min, since step 7" in end.message


def test_one_host_that_goes_on_keeps_all_from_being_called_hung() -> None:
    """Often only host 0 prints anything."""
    assert stall.hung(STALL, (running(0, 3), running(1, 10_000))) is None


def test_a_clock_that_jumped_is_no_hang() -> None:
    assert stall.hung(STALL, (running(0, 10_000, looks=1), running(1, 10_000))) is None
    few = (running(0, STALL, looks=stall.LOOKS), running(1, STALL, looks=stall.LOOKS))
    assert stall.hung(STALL, few) is not None, "so many looks in that time are enough"


def test_no_hang_is_seen_where_no_program_runs() -> None:
    assert stall.hung(STALL, (exited(0, 5000), exited(1, 5000))) is None
    assert stall.hung(STALL, (replace(running(0, 1e6), phase="setup"), running(1, 1e6))) is None


def test_a_host_that_does_not_tell_its_idle_time_is_not_judged() -> None:
    assert stall.hung(STALL, (replace(running(0, 0), idle=None), running(1, 10_000))) is None


def test_the_first_step_gets_longer_as_compiling_takes_its_time() -> None:
    compiling = (running(0, 1000, step=None), running(1, 1000, step=None))
    assert stall.hung(STALL, compiling) is None
    assert stall.hung(STALL, tuple(replace(r, idle=1900.0) for r in compiling)) is not None
    assert stall.hung(STALL, (compiling[0], running(1, 1000))) is not None, "host 1 is past it"


def test_the_agent_counts_by_the_same_times() -> None:
    assert stall.rule(600) == {"seconds": 600, "first": stall.FIRST_STEP, "looks": stall.LOOKS}
    assert stall.rule(3600)["first"] == 7200
    assert stall.rule(0) == {"seconds": 0, "first": 0, "looks": stall.LOOKS}


def test_a_program_that_tells_no_steps_at_all_gets_no_such_grace() -> None:
    plain = tuple(replace(running(h, 1000, step=None), progress=Progress()) for h in (0, 1))
    assert stall.hung(STALL, plain) is not None


def test_a_stall_of_zero_turns_the_watchdog_off() -> None:
    assert stall.hung(0, (running(0, 1e6), running(1, 1e6))) is None


def test_the_host_at_an_earlier_step_is_the_odd_one() -> None:
    end = stall.hung(STALL, (running(0, 1000, step=8), running(1, 1000, step=7)))
    assert end.host == 1
    assert "since step 7; host 1 is the odd one: it is at step 7, others at step 8" in end.message


def test_the_host_whose_stack_differs_is_the_odd_one_and_shown_first() -> None:
    waits = ("psum (collective.py:31)", "train (engine/loop.py:80)")
    reports = [replace(running(h, 1000), evidence=_stack(*waits)) for h in range(4)]
    reports[2] = replace(reports[2], evidence=_stack("read (data.py:9)", waits[1]))
    end = stall.hung(STALL, tuple(reports))
    assert end.host == 2
    assert end.evidence[0] == Proof(2, "read (data.py:9)")


def test_stacks_that_differ_in_numbers_only_are_alike() -> None:
    reports = tuple(
        replace(running(h, 1000), evidence=_stack(f"Thread 0x7f{h}a: wait")) for h in (0, 1, 2)
    )
    assert stall.odd_one(reports) == (None, "")


def test_no_stack_is_the_odd_one_of_two_or_where_all_differ() -> None:
    stacks = (
        "read (data.py:9)",
        "psum (collective.py:31)",
        "save (engine/loop.py:80)",
        "read (data.py:9)",
    )
    reports = [replace(running(h, 1000), evidence=_stack(line)) for h, line in enumerate(stacks)]
    assert stall.odd_one(reports[:2]) == (None, "")
    assert stall.odd_one(reports[:3]) == (None, "")
    assert stall.odd_one(reports) == (None, "")
    two_each = [*reports[:2], replace(reports[1], host=2), reports[3]]
    assert stall.odd_one(two_each) == (None, "")


def test_the_host_that_stopped_well_before_the_others_is_the_odd_one() -> None:
    end = stall.hung(STALL, (running(0, 950), running(1, 1000)))
    assert end.host == 1
    assert "host 1 is the odd one: it stopped 17 min ago, before the others" in end.message
    assert stall.odd_one((running(0, 960), running(1, 1000))) == (None, ""), "too close to tell"
    assert stall.odd_one((running(0, 1000),)) == (None, ""), "alone"


def exited(host: int, age: float, code: int = 0) -> HostReport:
    return HostReport(host, 1, "exited", age=age, exit_code=code)


def test_a_host_that_ended_well_while_the_other_does_nothing_more_is_found() -> None:
    end = stall.left_behind((exited(0, 45), running(1, 50)), 2)
    assert (end.cause, end.host) == (Cause.HANG, 1)
    assert "host 0 ended with success, and host 1 did nothing more for 50 s" in end.message


def test_a_host_that_still_works_after_another_has_ended_is_left_alone() -> None:
    assert stall.left_behind((exited(0, 500), running(1, 2)), 2) is None
    assert stall.left_behind((exited(0, 10), running(1, 60)), 2) is None, "it gets its time"
    both = (exited(0, 500), exited(1, 10), running(2, 60))
    assert stall.left_behind(both, 3) is None, "counted from the last that ended"
    assert stall.left_behind(both[1:], 3) is None, "one has not reported"
    assert stall.left_behind((exited(0, 500, code=1), running(1, 600)), 2) is None


def silent(age: float) -> tuple[HostReport, ...]:
    return (running(0, 1), replace(running(1, 1), age=age))


def test_silence_alone_is_not_enough_a_second_signal_is() -> None:
    assert stall.silent(silent(400), {}, 15) is None, "SSH was not asked, or answers"
    assert stall.silent(silent(400), {1: Silence(60, 2)}, 15) is None, "asked too seldom"
    assert stall.silent(silent(100), {1: Silence(400, 9)}, 15) is None, "it has just reported"
    assert stall.silent(silent(400), {1: Silence(59, 5)}, 15) is None, "asked for too short a time"
    end = stall.silent(silent(400), {1: Silence(60, 3)}, 15)
    assert (end.outcome, end.cause, end.host) == (Outcome.INTERRUPTED, Cause.LOST_CONTACT, 1)
    assert end.message == "host 1 has not reported for 7 min and does not answer over SSH"


def test_a_host_that_has_ended_has_nothing_more_to_report() -> None:
    assert stall.silent((exited(0, 5000), running(1, 1)), {0: Silence(4000, 99)}, 15) is None


def test_a_host_that_answers_but_never_reports_has_lost_its_agent() -> None:
    assert stall.silent(silent(1250), {}, 15) is None, "the bucket may refuse it for a while"
    end = stall.silent(silent(stall.SILENCE + 1), {}, 15)
    assert (end.cause, end.host) == (Cause.CRASH, 1), "the slice is not to blame"
    assert "its agent is gone" in end.message


def test_a_host_that_knows_that_its_agent_has_died_gets_no_patience() -> None:
    end = stall.silent(silent(80), {}, 15, agents_died={1})
    assert (end.outcome, end.cause, end.host) == (Outcome.FAILED, Cause.CRASH, 1)
    assert end.message == "host 1 has not reported for 80 s: something has killed its agent"
    assert stall.silent((exited(0, 500), running(1, 1)), {}, 15, agents_died={0}) is None
