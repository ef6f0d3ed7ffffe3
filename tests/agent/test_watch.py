"""The patterns of `watch:` on the output of a program, and the verdicts of programs that judge themselves."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.agent_host import Host
from tpujob.agent.watch.patterns import PatternWatch
from tpujob.domain.host import reports
from tpujob.domain.model import Verdict

LOSS = {"nonfinite": r"step (?P<step>\d+) loss[=: ]+nan", "progress": None}


def test_a_program_whose_loss_is_nan_is_stopped_and_its_line_is_the_verdict(host: Host) -> None:
    program = "trap 'echo told; exit 75' TERM; echo step 6 loss=0.5; echo step 7 loss=nan; while :; do sleep 0.1; done"
    report = host.run(program, watch=LOSS)
    assert (report["cause"], report["error"]) == ("NONFINITE", "step 7 loss=nan")
    read = reports.read_report(0, json.dumps(report), age=0)
    assert read is not None
    assert read.verdict == Verdict(step=7, host=0, device="", blame="", text="step 7 loss=nan")
    assert "told" in host.bucket.log(), "it may end by itself"


def test_a_program_that_ignores_the_stop_is_killed(host: Host) -> None:
    program = "trap '' TERM; echo loss: nan; while :; do sleep 0.1; done"
    report = host.run(program, watch={"nonfinite": "loss: nan"}, grace=0.3)
    assert (report["cause"], report["exit_code"]) == ("NONFINITE", -9)
    assert report["verdict"]["step"] is None


def test_the_output_of_set_up_is_not_searched_for_nan(host: Host) -> None:
    report = host.run("echo fine", setup="echo loss=nan", watch={"nonfinite": "nan"})
    assert (report["exit_code"], report["cause"], report["verdict"]) == (0, None, None)


def test_a_progress_pattern_names_the_step(host: Host) -> None:
    watch = {"progress": r"^it\[(?P<step>[\d,]+)\]"}
    report = host.run(r"printf 'it[5] x\rit[1,006] y\nit[7\nwait\n'; echo loss=nan", watch=watch)
    assert (report["exit_code"], report["step"]) == (0, 1006)


def test_a_pattern_that_takes_for_ever_is_given_up_and_the_log_goes_on(host: Host) -> None:
    line = "a" * 60
    program = (
        f"for i in 1 2 3 4; do echo {line}; done; echo loss=nan; seq 1000; sleep 1.5; echo end"
    )
    report = host.run(program, watch={"nonfinite": r"(a+)+b|never", "progress": r"(?P<step>\d+)$"})
    log = host.bucket.log()
    assert (report["exit_code"], report["step"], report["cause"]) == (0, 1000, None)
    (note,) = [text for text in log if text.startswith("[tpujob]")]
    assert "watch.nonfinite takes too long" in note
    assert log.count(line) == 4
    assert "end" in log


@pytest.mark.parametrize("code", [65, 71])
def test_a_verdict_of_the_program_itself_is_believed(host: Host, code: int) -> None:
    verdict = {"step": 9, "host": 1, "device": "TPU_3", "blame": "device", "text": "device 3 lies"}
    program = f"""echo '{json.dumps(verdict)}' > $TPUJOB_OUT/verdict.json; echo loss=nan; sleep 2; exit {code}"""
    report = host.run(f"trap '' TERM; {program}", watch={"nonfinite": "nan"}, grace=20)
    assert (report["exit_code"], report["cause"], report["error"]) == (code, None, "")
    assert report["verdict"] == verdict


def test_a_verdict_file_counts_only_with_the_exit_code_for_it(host: Host) -> None:
    report = host.run("""echo '{"step": 1}' > $TPUJOB_OUT/verdict.json; exit 70""")
    assert report["verdict"] is None


# The search itself ---------------------------------------------------------------------------------------------------


def watching(**patterns: Any) -> tuple[PatternWatch, list[str]]:
    notes: list[str] = []
    return PatternWatch(patterns, notes.append, lambda: None), notes


def test_an_invalid_pattern_is_reported() -> None:
    watch, notes = watching(nonfinite="(", progress="ok")
    watch.hear([b"ok"])
    watch.look()
    assert watch.signs == 1
    assert len(notes) == 1
    assert "watch.nonfinite" in notes[0]


def test_a_flood_of_output_is_searched_from_its_newest_part() -> None:
    watch, _ = watching(progress=r"(?P<step>\d+)")
    for start in range(0, 400_000, 1000):
        watch.hear([b"%d" % i for i in range(start, start + 1000)])
    watch.look()
    assert watch.step == 399_999
    assert 10_000 < watch.signs < 100_000, "what waits is bounded"


def test_a_slow_line_does_not_hide_the_others() -> None:
    watch, notes = watching(progress=r"(a+)+b|step (?P<step>\d+)")
    watch.hear([b"step 1", b"a" * 60, b"step 2"])
    watch.look()
    assert (watch.step, notes) == (2, [])
