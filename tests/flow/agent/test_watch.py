"""The patterns of `watch:` on the output of a program, and the verdicts of programs that judge themselves."""

import json
import re
from dataclasses import replace
from typing import Any

import pytest

from tests.support.agent_host import Host
from tests.support.paths import ROOT
from tpujob.agent.patterns import Match, PatternWatch
from tpujob.contract import REPLAY
from tpujob.domain.failures.preemption_notice import complete
from tpujob.domain.host import reports
from tpujob.domain.model import FoundProgress, Verdict
from tpujob.domain.spec.watch import TRAINERS

LOSS = {"nonfinite": r"step (?P<step>\d+) loss[=: ]+nan", "progress": None}


def test_a_program_whose_loss_is_nan_is_killed_and_its_line_is_the_verdict(host: Host) -> None:
    program = "trap 'echo told; exit 75' TERM; echo step 6 loss=0.5; echo step 7 loss=nan; while :; do sleep 0.1; done"
    report = host.run(program, watch=LOSS)
    assert (report["cause"], report["error"]) == ("NONFINITE", "step 7 loss=nan")
    read = reports.read_report(0, json.dumps(report))[1]
    assert read is not None
    assert read.verdict == Verdict(step=7, host=0, device="", blame="", text="step 7 loss=nan")
    assert (report["exit_code"], report["signalled"]) == (-9, True)
    assert "told" not in host.bucket.log(), "SIGTERM would make it save"


@pytest.mark.parametrize(
    ("program", "plan", "expected"),
    [
        pytest.param(
            "sleep 0.5; echo loss: nan; exit 1", {}, ("NONFINITE", 1), id="the last line of a crash"
        ),
        pytest.param("echo loss: nan", {}, (None, 0), id="a success"),
        pytest.param("echo fine", {"setup": "echo loss: nan"}, (None, 0), id="set-up"),
    ],
)  # fmt: skip
def test_which_output_is_searched(
    host: Host, program: str, plan: dict[str, Any], expected: tuple[object, ...]
) -> None:
    """Whether the program is signalled depends on what comes first: its end, or the watch."""
    report = host.run(program, watch={"nonfinite": "loss: nan"}, **plan)
    assert (report["cause"], report["exit_code"]) == expected
    assert (report["verdict"] is None) == (expected[0] is None)
    assert report["ran"] >= (0.5 if "sleep" in program else 0)


@pytest.mark.parametrize("by", ["a line of output", "an event"])
def test_a_bad_line_without_a_step_is_of_the_newest_step(host: Host, by: str) -> None:
    """No attempt resumes from a checkpoint of that step: the line may have come before it."""
    watch = {"nonfinite": "loss is nan", "checkpoint": r"saved (?P<step>\d+)"}
    step = """echo '{"t": 0, "kind": "step", "step": 45}' >> $TPUJOB_OUT/events.jsonl"""
    if by == "a line of output":
        watch["progress"], step = r"^step (?P<step>\d+)", "echo step 45"
    program = f"echo saved 40; {step}; sleep 1.5; echo loss is nan; echo saved 45; sleep 60"
    report = host.run(program, watch=watch)
    assert (report["cause"], report["verdict"]["step"]) == ("NONFINITE", 45)
    assert (report["step"], report["checkpoint"]) == (45, 40)


def test_a_program_that_replays_a_step_may_finish_its_verdict(host: Host) -> None:
    phase = json.dumps({"t": 0, "kind": "phase", "name": REPLAY})
    verdict = json.dumps({"step": 7, "host": 0, "device": "", "blame": "model", "text": "maths"})
    program = f"""trap 'echo told' TERM
        echo '{phase}' >> $TPUJOB_OUT/events.jsonl; echo loss=nan; sleep 2
        echo '{verdict}' > $TPUJOB_OUT/verdict.json; exit 65"""
    report = host.run(program, watch={"nonfinite": "nan"}, grace=60)
    assert (report["exit_code"], report["cause"]) == (65, None)
    assert report["verdict"]["blame"] == "model"
    assert "told" not in host.bucket.log(), "SIGTERM would make it save"


def test_after_a_bad_step_the_report_names_the_newest_checkpoint_before_it(host: Host) -> None:
    saved = "".join(
        f"""echo '{json.dumps({"t": 0, "kind": kind, "step": step})}' >> $TPUJOB_OUT/events.jsonl\n"""
        for kind, step in (("step", 9), *(("checkpoint", step) for step in (3, 6, 9)))
    )
    verdict = json.dumps({"step": 7, "host": 0, "device": "", "blame": "model", "text": "maths"})
    report = host.run(f"{saved}echo '{verdict}' > $TPUJOB_OUT/verdict.json; exit 65", watch=LOSS)
    assert (report["verdict"]["step"], report["step"], report["checkpoint"]) == (7, 9, 6)


def test_patterns_name_steps_the_checkpoint_and_where_it_goes_on_from(host: Host) -> None:
    watch = {
        "progress": r"^it\[(?P<step>[\d,]+)\]",
        "checkpoint": r"saved (?P<step>\d+)",
        "resume": r"going on from (?P<step>\d+)",
    }
    lines = ("going on from 40", "it[41]", "it[42]", "saved 42", "it[5] x\\rit[1,006] y", "it[7")
    report = host.run("; ".join(f"printf '{line}\\n'" for line in lines), watch=watch)
    names = ("resumed_from", "first_step", "step", "checkpoint")
    assert [report[name] for name in names] == [40, 41, 1006, 42]


def test_lines_are_searched_as_they_are_shown(host: Host) -> None:
    watch = {
        "progress": r"^step=(?P<step>\d+)",
        "checkpoint": r'^saved (?P<step>\d+), "end": 1$',
        "nonfinite": "loss=nan",
    }
    coloured = r"\033[32mstep=\033[36m7\033[0m loss=\033]8;;x\007\033[31mn\033[1man\033[0m"
    saved = "printf 'saved \\033[1m6\\033[0m, \"end\": 1\\n'"
    report = host.run(f"{saved}; printf '{coloured}\\n'; sleep 60", watch=watch)
    assert (report["step"], report["checkpoint"], report["cause"]) == (7, 6, "NONFINITE")
    assert report["error"] == "step=7 loss=nan"


def test_what_stands_late_in_a_long_line_is_found(host: Host) -> None:
    watch = {"progress": r'"global_step": (?P<step>\d+)', "checkpoint": r"saved (?P<step>\d+)"}
    lines = "printf '{%9000s, \"global_step\": 5}\\n' ''; printf '%17000s saved 3\\n' ''"
    report = host.run(lines, watch=watch)
    assert (report["step"], report.get("checkpoint")) == (5, None)


def test_a_pattern_that_is_slow_on_long_lines_is_searched_for_at_their_beginning(
    host: Host,
) -> None:
    watch = {"progress": r"(?P<step>\d+)(.*x)*.*y$", "checkpoint": r"saved (?P<step>\d+)"}
    lines = "printf '7%15000s\\n' '' | tr ' ' x; echo saved 2; echo 8 xy"
    report = host.run(f"{lines}; sleep 1.5", watch=watch)
    assert (report["step"], report["checkpoint"]) == (8, 2)
    notes = [line for line in host.bucket.log() if "takes too long" in line]
    assert notes == [
        "[tpujob] watch.progress takes too long on long lines: only their first 1000 characters are searched"
    ]


def test_a_checkpoint_that_a_line_names_counts_once_the_bucket_has_its_files(host: Host) -> None:
    watch = {"checkpoint": r"saved (?P<step>\d+)"}
    report = host.run("echo 7 > kept/it; echo saved 7", watch=watch, outputs=["kept"])
    assert report["checkpoint"] == 7
    assert [item["name"][-7:] for item in host.bucket.list("")].count("kept/it") == 1


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


def test_a_verdict_of_the_program_itself_is_believed(host: Host) -> None:
    verdict = {"step": 9, "host": 1, "device": "TPU_3", "blame": "device", "text": "device 3 lies"}
    program = f"""echo '{json.dumps(verdict)}' > $TPUJOB_OUT/verdict.json; echo loss=nan; sleep 2; exit 71"""
    report = host.run(f"trap '' TERM; {program}", watch={"nonfinite": "nan"}, grace=20)
    assert (report["exit_code"], report["cause"], report["error"]) == (71, None, "")
    assert report["verdict"] == verdict


def test_a_verdict_file_counts_only_with_the_exit_code_for_it(host: Host) -> None:
    report = host.run("""echo '{"step": 1}' > $TPUJOB_OUT/verdict.json; exit 70""")
    assert report["verdict"] is None


#: lines with a loss that is not finite at step 5, as programs print them
BAD_LINES = [
    "step 5 loss=nan,", "step 5 loss: NaN", "step 5, loss = NaN.", "step 5 loss=-inf", "step 5 loss=Infinity",
    "completed step: 5, seconds: 0.449, TFLOP/s/device: 1877.176, loss: nan", "\rtrain: step 5/9 [loss=nan]",
    "{'step': 5, 'loss': nan}", '{"step": 5, "lr": 1e-3, "loss": -Infinity}', "Step=5 val_loss inf", "STEP:5 LOSS:NAN",
    "step 5 loss: tensor(nan)", "step 5 loss = tensor(-inf, device='xla:0')",
]  # fmt: skip
GOOD_LINES = [
    "step 5 loss=0.5 nan_count=0", "step 5 loss: 2.31 grad: nan", "step 5 loss: info", "step 5 loss nano",
    "step 5 no loss yet", "step 5 loss=1e-3 inf/s",
]  # fmt: skip


@pytest.mark.parametrize("source", ["docs/recovery.md", "configs/jobspec.schema.json"])
def test_the_documented_pattern_matches_every_spelling(source: str) -> None:
    text = (ROOT / source).read_text(encoding="utf-8").replace("\\\\", "\\")
    (pattern,) = re.findall(r"'(\(\?i\)\(step[^']+)'", text)
    found = [match and match["step"] for match in map(re.compile(pattern).search, BAD_LINES)]
    assert dict(zip(BAD_LINES, found, strict=True)) == dict.fromkeys(BAD_LINES, "5")
    assert [line for line in GOOD_LINES if re.search(pattern, line)] == []
    assert re.search(pattern, "epoch 3 loss=nan"), "the line may name no step"


# The search itself ---------------------------------------------------------------------------------------------------


def watching(**patterns: Any) -> tuple[PatternWatch, list[str]]:
    notes: list[str] = []
    return PatternWatch(patterns, notes.append, lambda: None), notes


def test_an_invalid_pattern_is_reported() -> None:
    watch, notes = watching(nonfinite="(", progress="ok")
    watch.add_lines([b"ok"])
    watch.search()
    assert watch.signs == 1
    assert len(notes) == 1
    assert "watch.nonfinite" in notes[0]


def test_a_flood_of_output_is_searched_from_its_newest_part() -> None:
    watch, _ = watching(progress=r"(?P<step>\d+)")
    for start in range(0, 400_000, 1000):
        watch.add_lines([b"%d" % i for i in range(start, start + 1000)])
    watch.search()
    assert watch.take_matches()[-1] == Match("progress", 399_999, None, {})
    assert watch.first_step is not None
    assert watch.first_step > 0, "it is the first of those that were searched"
    assert 10_000 < watch.signs < 100_000, "what waits is bounded"


@pytest.mark.parametrize(
    ("printed", "first_step"),
    [
        ((1, 2), 1),
        ((51, 52, 53), 51),
        ((10, 20, 30), 1),  # each tenth
        ((60, 70), 51),
        ((60, 60, 70), 51),  # two lines of one step
        ((0, 10), 0),
        ((1, 10), 1),  # the first one, and each tenth
        ((51, 60, 70), None),  # the same after a resume, or lines that come by the clock
        ((100,), None),  # it may print each hundredth
    ],
)
def test_two_printed_steps_show_the_first(printed: tuple[int, ...], first_step: int | None) -> None:
    watch, _ = watching(progress=r"(?P<step>\d+)")
    watch.add_lines([b"%d" % step for step in printed])
    watch.search()
    assert watch.first_step == first_step


@pytest.mark.parametrize(
    ("lines", "resumed_from", "first_step"),
    [
        # after a resume, and from the beginning
        (
            ("step 200: train loss 3.5, val loss 3.5", "iter 200: loss 3", "iter 210: loss 3"),
            200,
            201,
        ),
        (("step 0: train loss 4.5, val loss 4.5", "iter 0: loss 4", "iter 10: loss 4"), None, 0),
    ],
)
def test_nanogpt_resumes_at_its_first_evaluation_and_at_no_later_one(
    lines: tuple[str, ...], resumed_from: int | None, first_step: int
) -> None:
    nanogpt = TRAINERS["nanogpt"]
    watch, _ = watching(progress=[*nanogpt.progress], resume=nanogpt.resume)
    printed = [line + ", time 9.1ms, mfu 0.1%" * line.startswith("iter") for line in lines]
    printed.append("step 250: train loss 3.2, val loss 3.2")
    watch.add_lines([line.encode() for line in printed])
    watch.search()
    resumed = [match.step for match in watch.take_matches() if match.name == "resume"]
    assert resumed == [step for step in (resumed_from,) if step is not None]
    assert watch.first_step == first_step


def test_a_slow_line_does_not_hide_the_others() -> None:
    watch, notes = watching(progress=r"(a+)+b|step (?P<step>\d+)")
    watch.add_lines([b"step 1", b"a" * 60, b"step 2"])
    watch.search()
    assert (watch.first_step, watch.take_matches()[-1].step, notes) == (1, 2, [])


def test_what_is_found_in_the_output_is_shown_and_is_no_report(host: Host) -> None:
    lines = (
        "for i in 1 2 3; do echo step $i/3 loss 0.$i; done; echo step 4/3 loss=nan; sleep 2; exit 0"
    )
    report = host.run(lines, watch={"find": True}, nonfinite_steps=1)
    shown = report["found"] | {"step_s": None}
    assert shown == {"step": 4, "steps": 3, "loss": "NaN", "step_s": None, "metrics": {}}
    assert (report.get("step"), report.get("loss"), report.get("nonfinite")) == (None, None, None)
    assert (report["exit_code"], report["cause"]) == (0, None), "it decides nothing"
    note = "found in the output: step, steps, loss; it is only shown (`watch: off` ends the search)"
    assert [line for line in host.bucket.log() if "found" in line] == [f"[tpujob] {note}"]
    read = reports.read_report(0, json.dumps({**report, "found": shown}))[1]
    assert read is not None
    assert read.progress.found == FoundProgress(step=4, steps=3, nonfinite="NaN")
    assert not complete(replace(read.progress, found=FoundProgress(step=3, steps=3)))


def test_a_program_that_reports_its_steps_is_not_searched(host: Host) -> None:
    event = json.dumps({"t": 0, "kind": "step", "step": 7, "loss": 1.5})
    program = f"echo '{event}' >> $TPUJOB_OUT/events.jsonl; sleep 1; echo step 4/9 loss 2; sleep 2"
    report = host.run(program, watch={"find": True})
    assert (report["step"], report["loss"], report.get("found")) == (7, 1.5, None)


def test_groups_of_a_pattern_are_metrics_and_a_loss_that_is_not_finite_ends_the_attempt(
    host: Host,
) -> None:
    watch = {"progress": [r"it (?P<step>\d+)/(?P<steps>\d+) loss=(?P<loss>\S+) (?P<tok>\d+) tok/s"]}
    bad = "for i in 2 3 4; do echo it $i/9 loss=nan 90 tok/s; done"
    program = f"echo it 1/9 loss=2.5 100 tok/s; sleep 1; {bad}; sleep 60"
    report = host.run(program, watch=watch, nonfinite_steps=3)
    assert (report["step"], report["steps"], report["metrics"]) == (4, 9, {"tok": 90.0})
    assert (report["cause"], report["verdict"]["step"]) == ("NONFINITE", 2)
