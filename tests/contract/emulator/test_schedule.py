"""Drills that come by themselves: what a seed brings, what a schedule may say, and both in a world's time."""

import itertools
import re
from collections import Counter
from typing import Any

import pytest

from tests.contract.emulator.world_rig import ZONE, Model
from tpujob.emulator import CHAOS_PER_HOUR, fault_commands, schedule
from tpujob.emulator.cloud.records import ApiError
from tpujob.emulator.schedule import Step

HOUR = 3600.0

# What a seed brings --------------------------------------------------------------------------------------------------


def test_a_seed_is_a_plan_and_the_same_one_on_every_machine() -> None:
    first = [shown(step) for step in itertools.islice(schedule.chaos_steps(7, 1.0), 3)]
    assert first == [
        (134.988, "storage-error", "pick 673175811"),
        (147.166, "storage-error", "pick 3138458493"),
        (187.139, "oom", "pick 3723236131"),
    ]
    assert first != [shown(step) for step in itertools.islice(schedule.chaos_steps(8, 1.0), 3)]


def shown(step: Step) -> tuple[float, str, str]:
    return step.at, step.do, step.text


def test_leaving_out_kinds_of_faults_does_not_move_the_others() -> None:
    def first_day(only: tuple[str, ...] = ()) -> list[tuple[float, str, str]]:
        return [shown(step) for step in schedule.chaos_steps(3, 1.0, only, 24 * HOUR)]

    everything = first_day()
    assert [at for at, _, _ in everything] == sorted(at for at, _, _ in everything)
    for kind in CHAOS_PER_HOUR:
        assert first_day((kind,)) == [step for step in everything if step[1] == kind]


@pytest.mark.parametrize("rate", [0.25, 5.0])
def test_a_plan_has_as_many_faults_as_were_asked_for(rate: float) -> None:
    hours = 200
    came = Counter(step.do for step in schedule.chaos_steps(1, rate, until=hours * HOUR))
    for kind, per_hour in CHAOS_PER_HOUR.items():
        mean = per_hour * rate * hours
        assert abs(came[kind] - mean) < 5 * mean**0.5, f"{kind}: {came[kind]}, not about {mean}"


def test_the_target_of_a_fault_follows_from_the_seed_and_what_is_there() -> None:
    """Every command that chaos plans is one that the emulator takes."""
    model = Model()
    assert [schedule.aim_at(model.world, kind, 1) for kind in ("preempt", "stockout")] == [
        None,
        None,
    ]
    model.ask("q")
    model.ask("r")
    model.go(20)
    for step in itertools.islice(schedule.chaos_steps(5, 1.0), 400):
        how = step.aim(model.world)
        assert how == step.aim(model.world)
        assert how is not None
        assert step.do in fault_commands.COMMANDS
        assert (how.get("host") or 0) < 2


# What a schedule may say ---------------------------------------------------------------------------------------------


def test_a_schedule_is_read_in_the_words_of_the_command_line() -> None:
    steps = schedule.parse(
        [
            {"at": "2m", "do": "stockout", "zone": ZONE, "for": "10m", "fail": "true"},
            {"at": "30s", "do": "preempt", "target": "000042", "notice": "5s"},
            {"at": 31, "do": "slow", "host": 1, "factor": "2.5"},
            {"at": "1h", "do": "api-error", "method": "*", "code": "INTERNAL", "after": True},
            {"at": "2h", "do": "break-host", "physical": f"{ZONE}-h003"},
            {"at": "3h", "do": "break-host", "physical": f"{ZONE}-h003", "mend": "true"},
            {"at": "4h", "do": "quota", "zone": ZONE, "type": "v4", "limit": "none"},
        ]
    )
    assert [(s.at, s.do, s.aim(Model().world)) for s in steps] == [
        (30, "preempt", {"target": "000042", "notice_s": 5}),
        (31, "slow", {"host": 1, "factor": 2.5}),
        (120, "stockout", {"zone": ZONE, "for_s": 600, "fail": True}),
        (3600, "api-error", {"method": "*", "code": "INTERNAL", "after": True}),
        (7200, "break-host", {"physical": f"{ZONE}-h003"}),
        (10800, "break-host", {"physical": f"{ZONE}-h003", "mend": True}),
        (14400, "quota", {"zone": ZONE, "type": "v4", "limit": None}),
    ]


@pytest.mark.parametrize(
    ("steps", "error"),
    [
        ({}, "a list of steps"),
        ([], "a list of steps"),
        (["preempt"], "step 1 is not a mapping"),
        ([{"at": "1s", "do": "tea"}], "step 1: do must be one of preempt"),
        ([{"do": "preempt"}], "step 1: preempt: at must be"),
        ([{"at": "1s", "do": "preempt"}, {"at": "soon", "do": "oom"}], "step 2: oom: at must be"),
        (
            [{"at": "1s", "do": "preempt", "host": 1}],
            "preempt: there is target, notice to give, not 'host'",
        ),
        ([{"at": "1s", "do": "offer", "zone": ZONE}], "offer: type must be given"),
        ([{"at": "1s", "do": "slow", "factor": "fast"}], "factor must be a number"),
        ([{"at": "1s", "do": "hang", "off": "maybe"}], "off must be true or false"),
        ([{"at": "1s", "do": "break-host", "physical": "x", "fault": "rust"}], "no such fault"),
        ([{"at": "1s", "do": "preempt"}] * 1001, "at most 1000"),
    ],
)
def test_an_invalid_step_is_named(steps: Any, error: str) -> None:
    with pytest.raises(ApiError, match=error):
        schedule.parse(steps)


# In a world's time ---------------------------------------------------------------------------------------------------


def do(model: Model, command: str, **values: Any) -> dict[str, Any]:
    status, answer = model.control.perform("POST", f"/{command}", values)
    assert status == 200, answer
    return answer


def reported(model: Model) -> list[str]:
    return [text for _, text in model.world.history]


def test_a_schedule_carries_out_each_step_at_its_time() -> None:
    model = Model.with_slice()
    steps = [
        {"at": "10s", "do": "preempt", "notice": "0"},
        {"at": "20s", "do": "stockout", "zone": ZONE, "for": "30s"},
        {"at": "25s", "do": "oom"},
    ]
    coming = do(model, "schedule", steps=steps)
    assert [(n["in_s"], n["do"]) for n in coming["next"]] == [
        (10, "preempt"),
        (20, "stockout"),
        (25, "oom"),
    ]
    model.go(9)
    assert model.state("q")[1] == "READY"
    model.go(2)
    assert model.state("q")[1] == "PREEMPTED"
    shown = model.control.perform("GET", "/status", {})[1]["schedule"]
    assert (shown["done"], shown["next"][0]["in_s"]) == (1, 9)
    model.go(20)
    assert model.world.faults.stockout(ZONE, "v4", model.now)
    assert "schedule: oom failed: no slice is ready" in reported(model)
    assert reported(model)[-1] == "schedule: has ended"
    assert model.control.perform("GET", "/status", {})[1]["schedule"] is None


def storm(model: Model, hours: float, **options: Any) -> list[tuple[float, str]]:
    """A day's worth of chaos over a world with one slice that is always asked for again; what it did."""
    model.ask("q")
    model.go(20)
    do(model, "chaos", seed=11, rate=5, **options)
    model.world.history.clear()
    seen: list[tuple[float, str]] = []
    for _ in range(int(hours * 60)):
        model.go(60)
        seen += model.world.history
        model.world.history.clear()
        if model.state("q") == ("SUSPENDED", "PREEMPTED"):
            do(model, "delete", target="q")
            model.go(20)
        if model.state("q") == ("", ""):
            model.ask("q")
    return seen


def came(seen: list[tuple[float, str]]) -> set[str]:
    """The kinds of fault that chaos brought, whether there was something to hit or not."""
    events = [text.removeprefix("chaos 11: ") for _, text in seen if text.startswith("chaos 11: ")]
    return {kind for kind in CHAOS_PER_HOUR if any(re.match(rf"{kind}\b", s) for s in events)}


def test_the_same_seed_does_the_same_to_the_same_world() -> None:
    events = storm(Model(), 3)
    assert events == storm(Model(), 3)
    assert came(events) == set(CHAOS_PER_HOUR), "not everything came in three hours of storm"
    assert not any("INVALID" in text or "must be" in text for _, text in events)


def test_chaos_can_be_limited_and_ended() -> None:
    model = Model()
    seen = storm(model, 2, only="preempt, slow", for_s=HOUR)
    assert came(seen) == {"preempt", "slow"}
    assert max(at for at, text in seen if "chaos" in text) < 1020 + HOUR + 600
    do(model, "chaos", seed=1, rate=100)
    do(model, "end-plan")
    before = len(model.world.history)
    model.go(HOUR)
    assert not [t for t in reported(model)[before:] if t.startswith("chaos")]
