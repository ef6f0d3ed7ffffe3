"""Golden texts at 80 columns. If one differs and the new one reads better, replace it."""

import math
import os
from typing import Any, cast

import pytest
from rich.console import Console

from tests.support.golden import golden
from tests.support.scripted import (
    AT,
    ScriptedJobs,
    action,
    attempt_view,
    coming,
    event_view,
    job_row,
    job_view,
    log_line,
    slice_view,
)
from tpujob.api import ChartView, CurveView, JobView, MetricsView, PlanView
from tpujob.cli.commands.demo import shortcomings, steps_lost, summary, try_next
from tpujob.cli.render import answers, job_page, lines, listing, panel, words
from tpujob.cli.render.job_page import why_page
from tpujob.cli.render.plot import plot_page
from tpujob.cli.render.text import width
from tpujob.domain.text import clean, seconds

pytestmark = pytest.mark.usefixtures("utc")

NOW = (seconds(AT) or 0) + 130


def at(clock: str) -> str:
    return f"2026-01-02T{clock}.000Z"


def preempted_and_done(**fields: Any) -> JobView:
    lost = {"running_at": at("03:04:15"), "ended_at": at("03:05:05"), "outcome": "interrupted"}
    lost |= {"cause": "PREEMPTED", "message": "tj-000042-1 was preempted"}
    good = {"running_at": at("03:05:25"), "ended_at": at("03:06:00"), "outcome": "succeeded"}
    requested, gone = at("03:05:10"), at("03:06:05")
    return job_view(
        state="succeeded",
        message="all 2 hosts exited with 0",
        outcome="succeeded",
        finished_at=gone,
        step=600,
        metrics={"test_accuracy": 0.9861},
        attempt=2,
        usd_spent=0.24,
        slices=[
            slice_view("tj-000042-1", gone_at=requested),
            slice_view("tj-000042-2", requested_at=requested, gone_at=gone),
        ],
        attempts=[
            attempt_view(1, **lost, step=305, first_step=1, checkpoint=300, redone=5),
            attempt_view(
                2, **good, started_at=at("03:05:20"), step=600, resumed_from=300, first_step=301
            ),
        ],
        **fields,
    )


def test_list() -> None:
    waits = {"state": "provisioning", "zone": "europe-west4-b", "type": "v5litepod-16"}
    jobs = [
        job_view(),
        job_view("000043", name="llama-1b", **waits, host0_ip="", step=None),
        job_view("000044", name="hello", state="succeeded", step=None, zone="us-east1-d"),
    ]
    golden("list", listing.job_table([*map(job_row, jobs)], 80, NOW))


def test_list_with_hostile_and_long_values_keeps_its_columns() -> None:
    long = {"name": "llama-1b-with-a-very-long-name-of-40-chars", "user": "margarethe"}
    long |= {"state": "provisioning", "type": "v5litepod-256", "zone": "asia-northeast1-b"}
    jobs = [
        job_view("000043", **long, host0_ip="34.123.222.111", step=12345678, steps=20000000),
        job_view("000044", name="訓練ジョブの名前がとても長い", user="\x1b[31mroot", step=None),
        job_view("000045", name="$(reboot)\u202egpj.exe", user="<script>\n\r"),
    ]
    text = listing.job_table([*map(job_row, jobs)], 80, NOW)
    assert text == clean(text.replace("\n", "|")).replace("|", "\n")
    rows = text.splitlines()
    assert len(rows) == 4
    assert {width(row) for row in rows} == {80}, f"the last column does not line up:\n{text}"


def test_a_narrow_list_keeps_the_names_and_leaves_out_what_is_worth_less() -> None:
    name = "llama-pretraining-v2"
    rows = [
        job_row(job_view(name=name, host0_ip="34.123.222.111", zone="us-central2-b")),
        job_row(job_view("000043", name="evaluation", state="provisioning")),
    ]
    text = listing.job_table(rows, 70, NOW)
    assert name in text
    assert "Host0 IP" not in text
    assert "User" not in text, "it is the same in each row"
    text = listing.job_table([*rows, job_row(job_view("000044", user="eve"))], 70, NOW)
    assert name in text
    assert "eve" in text
    assert "000042" in listing.job_table(rows, 20, NOW)


def test_a_wide_terminal_says_why_and_what_is_in_the_way() -> None:
    rows = [
        job_row(job_view(message="attempt 1 runs on 2 hosts " + "x" * 90)),
        job_row(job_view("000043", trouble="503 the service is unavailable")),
    ]
    golden("list-wide", listing.job_table(rows, 120, NOW))
    assert "Why" not in listing.job_table(rows, 96, NOW)


@pytest.mark.parametrize("columns", [60, 80])
def test_the_cost_of_a_slice_is_not_cut(columns: int) -> None:
    lost = slice_view("tj-000042-1-0123abcd", gone_at=AT, usd=0.0, free=True)
    page = job_page.job_page(job_view(slices=[lost], timeline=[]), [], columns, NOW)
    assert "at $7.37/h: preempted in its first minute, which is free" in " ".join(page.split())
    assert max(map(width, page.splitlines())) <= columns


def test_show() -> None:
    lost = {"ended_at": at("03:05:05"), "outcome": "interrupted", "cause": "PREEMPTED"}
    job = job_view(
        slices=[slice_view("tj-000042-1", gone_at=AT), slice_view("tj-000042-2")],
        attempts=[
            attempt_view(1, **lost, message="tj-000042-1 was preempted", step=300),
            attempt_view(2, step=480, resumed_from=300, first_step=301),
        ],
        attempt=2,
        metrics={"test_accuracy": 0.98765},
    )
    events = [
        event_view(1, "queued", "ada submitted digits for spot v4-16"),
        event_view(2, "running", "attempt 1 runs on 2 hosts"),
    ]
    golden("show", job_page.job_page(job, events, 80, NOW))


def test_a_first_contact_that_was_believed_is_shown() -> None:
    for trust, noted in (("first-contact", True), ("published", False), ("", False)):
        slices = [slice_view("tj-000042-1", host_keys=trust)]
        page = job_page.job_page(job_view(slices=slices), [], 80, NOW)
        assert ("trusted at the first contact" in page) is noted, trust


def test_several_slices_are_counted_before_their_type() -> None:
    plan = {**ScriptedJobs().plan({"name": "x"}), "tpu_slices": 2}
    assert "TPU       2 x v4-16 (v4), spot" in answers.plan_page(cast(PlanView, plan), 80)
    job = job_view(
        tpu_slices=2, chips=16, hosts=4, slices=[slice_view("tj-000042-1", tpu_slices=2)]
    )
    page = job_page.job_page(job, [], 80, NOW)
    assert "2 x v4-16: 16 chips on 4 hosts, topology 2x2x2" in page
    assert "spot 2 x v4-16 in us-central2-b" in page
    assert "2 x v4-16" in listing.job_table([job_row(job)], 80, NOW)


def test_the_pages_of_a_plan_and_of_a_new_job() -> None:
    plan = ScriptedJobs().plan({"name": "x"})
    parts = {"environment": "uv r.txt", "mounts": ["m1", "m2"], "warnings": ["w"]}
    golden("plan", answers.plan_page(cast(PlanView, {**plan, **parts}), 80))
    golden("created", answers.created_text(job_view(), 80, 7.37, color=False))
    several = {**plan, "command": "cd code\n\npython3 train.py\n"}
    page = answers.plan_page(cast(PlanView, several), 80)
    assert page.endswith("  Program   cd code\n            python3 train.py")


def test_evidence_that_an_earlier_attempt_has_is_shown_once() -> None:
    crash = [{"host": 0, "text": "NameError: name 'y' is not defined"}]
    ends = [attempt_view(n, outcome="failed", cause="CRASH", evidence=crash) for n in (1, 2)]
    text = job_page.job_page(job_view(attempts=ends), [], 80, NOW)
    assert text.count("NameError") == 1
    assert "| the same as attempt 1" in text


def test_the_summary_of_the_demo() -> None:
    done = preempted_and_done()
    golden("demo", summary(done, 80, list_price=7.37, attempts=2) + "\n\n" + try_next(done))


def test_the_shortcomings_of_a_demo_are_listed() -> None:
    done = preempted_and_done()
    assert shortcomings(done, attempts=2) == []
    for job, attempts, problem in (
        (done | {"metrics": {"test_accuracy": 0.9}}, 2, "90.0%"),
        (done | {"metrics": {}}, 2, "no test accuracy"),
        (done, 1, "2 attempts instead of 1"),
        (job_view(state="failed"), 1, "failed"),
    ):
        assert problem in str(shortcomings(cast(JobView, job), attempts=attempts))


def test_steps_lost_are_those_made_twice() -> None:
    assert steps_lost(preempted_and_done()) == 5
    assert steps_lost(job_view()) == 0
    before_any_checkpoint = [attempt_view(1, step=40, redone=40), attempt_view(2, step=600)]
    assert steps_lost(job_view(attempts=before_any_checkpoint)) == 40
    not_known = [attempt_view(1, step=40, redone=None), attempt_view(2)]
    assert steps_lost(job_view(attempts=not_known)) is None


def test_what_happens_next_says_when_and_what_a_person_can_do() -> None:
    text, at = "the slice is released", "2026-01-02T03:19:05.000Z"
    job = job_view(next=coming("release_slice", text, "tpujob resume 000042", at=at))
    sentence = "the slice is released; `tpujob resume 000042` resumes it"
    assert words.what_next(job, NOW) == f"in 12m50s, at 03:19:05: {sentence}"
    assert words.what_next(job, NOW + 3600) == sentence, "a time that is past says nothing"
    assert words.what_next(job_view(next=coming("release_slice", text)), NOW) == text


def test_fields_that_an_older_backend_does_not_send_are_optional() -> None:
    young = ("next", "capacity", "budgets")
    old = cast(JobView, {name: value for name, value in job_view().items() if name not in young})
    for page in (job_page.job_page, why_page):
        text = page(old, [], 80, NOW)
        assert "running" in text
        assert "Next" not in text
    assert "Next" not in answers.steered_text(old, 80, NOW)


def test_a_question_names_the_job_the_slice_and_its_price() -> None:
    stops = action("delete", "gives tj-000042-1 back", "$7.37/h until the slice is gone")
    question = answers.stop_question(job_view(actions=[stops]), "Delete", checkpoints=False)
    costs = "It costs $7.37/h until the slice is gone."
    assert question == f"Delete job 000042 (digits)? It gives tj-000042-1 back. {costs}"
    cleans = action("clean", "removes its logs", "nothing", "checkpoints")
    done = cast(JobView, preempted_and_done() | {"actions": [cleans]})
    assert answers.stop_question(done, "Delete", checkpoints=False) == "", "nothing would be lost"
    assert "logs" in answers.stop_question(done, "Clean", checkpoints=False)
    assert "checkpoints" in answers.stop_question(done, "Clean", checkpoints=True)


def test_log_lines_are_harmless_and_say_their_host() -> None:
    hostile = log_line(3, "\x1b[2J\x1b]0;x\x07loss 0.5\r")
    assert lines.log_line(hostile, prefix=True, color=False) == "3| loss 0.5 "
    assert lines.log_line(hostile, prefix=False, color=True) == "loss 0.5 "
    assert lines.log_line(hostile, prefix=True, color=True).startswith("\x1b[")


def test_an_event_is_cut_on_a_page_of_many_and_whole_where_it_is_asked_for() -> None:
    event = event_view(1, "releasing", "attempt 1 ended, PREEMPTED: the slice was preempted")
    start = "  03:04:05  releasing     attempt 1 ended, PREEMPTED: the"
    assert lines.event_line(event, 60) == f"{start} sli…"
    assert lines.event_lines(event, 60) == f"{start}\n{'':24}slice was preempted"


def panel_text(job: JobView, events: list[tuple[str, str, str]]) -> str:
    with open(os.devnull, "w") as nowhere:
        console = Console(width=80, record=True, file=nowhere)
        console.print(panel.picture(job, events, NOW, 7.37))
        return console.export_text()


def test_the_live_panel_shows_what_matters() -> None:
    events = [("03:04:05", "running", "attempt 1 runs on 2 hosts"), ("03:04:06", "", "remark")]
    text = panel_text(job_view(), events)
    parts = ("000042", "tj-000042-1", "127.1.0.2", "480/600", "0.01234", "$7.37/h", "$0.12")
    assert all(part in text for part in parts), text
    assert "03:04:05  running       attempt 1 runs on 2 hosts" in text
    queued = job_view(state="queued", slices=[], attempts=[], step=None, steps=None)
    assert panel_text(queued, []).count("\n") == text.count("\n"), "the panel would jump"


def test_the_live_panel_tells_a_condemned_slice_from_the_one_that_serves() -> None:
    bad = slice_view("tj-000042-1", role="condemned")
    new = slice_view("tj-000042-2", hosts=["127.9.0.1"])
    both = panel_text(job_view(slices=[new, bad], condemned=["tj-000042-1"]), [])
    assert "  tj-000042-2  spot v4-16 in us-central2-b  (and tj-000042-1, conde" in both
    assert "  0: 127.9.0.1 " in both
    assert "us-central2-b  condemned" in panel_text(
        job_view(slices=[bad], condemned=["tj-000042-1"]), []
    )


def test_refused_requests_are_counted_not_listed() -> None:
    refused = [
        slice_view(f"tj-000042-{k}", zone=zone, ready_at=None, gone_at=AT)
        for k, zone in enumerate(("us-east5-b", "us-east5-a", "us-east5-b"), start=1)
    ]
    job = job_view(slices=[*refused, slice_view("tj-000042-4")])
    page = job_page.job_page(job, [], 80, NOW)
    assert "tj-000042-2" not in page
    assert "tj-000042-4  held" in page
    assert "3 requests failed: us-east5-b 2, us-east5-a 1" in page


def test_hosts_that_a_firewall_keeps_apart_come_with_a_cure() -> None:
    missed = {"source": 3, "target": 0, "port": 8476}
    ended = {"ended_at": AT, "outcome": "failed", "cause": "SETUP", "host": 3, "message": "x"}
    job = job_view(state="failed", cause="SETUP", attempts=[attempt_view(1, **ended)])
    assert "doctor" not in why_page(job, [], 80, NOW)
    job = job_view(state="failed", attempts=[attempt_view(1, **ended, unreached=missed)])
    assert "`tpujob doctor` prints the missing rule" in " ".join(why_page(job, [], 80, NOW).split())
    assert "prints the missing rule" in " ".join(job_page.job_page(job, [], 80, NOW).split())


# Curves ------------------------------------------------------------------------------------------------------------


def curve(attempt: int, values: list[float], first: int = 0, kept: int | None = None) -> CurveView:
    points = [(first + 10 * i, float(i), v, v, v) for i, v in enumerate(values)]
    return CurveView(
        job="000001",
        attempt=attempt,
        began_at="2026-01-01T00:00:00.000Z",
        points=points,
        resumed_from=first or None,
        kept=kept,
        cause=None,
        nonfinite=None,
        checkpoint=None,
    )


def metrics(*curves: CurveView) -> MetricsView:
    chart = ChartView(name="loss", title="Loss", curves=list(curves))
    return MetricsView(charts=[chart], attempts=[1, 2], left_out=0, unread=[], why="")


def test_a_curve_falls_from_left_to_right_on_the_scale_of_all_attempts() -> None:
    page = plot_page(metrics(curve(1, [8, 6, 4]), curve(2, [4, 2, 1], first=30)), 32)
    title, first, second = page.splitlines()
    assert title == "Loss  1 to 8, 1 at step 50"
    assert first.split()[0] == "1"
    assert first.split()[1][0] == "█"
    assert second.index("▄") >= len(first) - 4, "it goes on where the first one ended"
    assert second[-1] == "▁"


def test_steps_that_were_lost_are_dim_and_what_is_not_finite_stands_out() -> None:
    page = plot_page(metrics(curve(1, [3, 2, math.nan, 1], kept=10)), 40, color=True)
    assert "\x1b[2m" in page
    assert "!" in page


def test_a_job_without_curves_says_why() -> None:
    none = MetricsView(charts=[], attempts=[], left_out=0, unread=[], why="no program has run yet")
    assert plot_page(none, 80) == "no program has run yet"
