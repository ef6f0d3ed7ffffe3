"""The bound of a step and what is likely, in numbers that were worked out apart."""

from dataclasses import replace

import pytest

from workloads.check.advice import changed, changes, flags, gain, larger
from workloads.check.finding import Exchange, Finding, Order, Program, memory
from workloads.check.report import Work, as_json, pace, page
from workloads.check.roofline import likely, narrowed, published, step, wire_seconds
from workloads.check.topologies import target
from workloads.frame.chips import PUBLISHED
from workloads.frame.config import TrainConfig
from workloads.lm import LmConfig


def program(**changed: object) -> Program:
    """Return the figures of a Llama of 1.24B on 16 v5e chips, a sequence of 4,096 tokens on each."""
    figures = {
        "peak_bytes": 5_153_960_755,
        "argument_bytes": 927_640_064,
        "flops": 47.09e12,
        "asked_flops": 47.09e12,
        "model_flops": 39.1e12,
        "hbm_bytes": 536e9,
        "exchanges": (
            Exchange(kind="all-gather", axes=("fsdp",), times=289, wire_bytes=23.7e9,
                     seconds=wire_seconds(23.7e9, 2, target("v5e-16"))),
        ),
        "xla_flops": 2.5e12,
        "xla_bytes": 45e9,
        "trace_seconds": 1.0,
        "compile_seconds": 28.0,
    }  # fmt: skip
    return Program(**{**figures, **changed})  # type: ignore[arg-type]


def finding(name: str = "v5e-16", **changed: object) -> Finding:
    fields = {
        "target": name,
        "fit": "yes",
        "rows": 16,
        "tokens": 16 * 4096,
        "parameters": 1_240_000_000,
        "limit_bytes": int(target(name).chip.usable_hbm_gib * 2**30),
        "program": program(),
        "versions": {"jax": "0.10.2", "libtpu": "0.0.42.1"},
    }
    return Finding(**{**fields, **changed})  # type: ignore[arg-type]


def test_each_part_takes_its_time_at_the_peak_of_the_chip() -> None:
    times = step(program(), target("v5e-16"))
    assert times.mxu == pytest.approx(47.09 / 197, rel=1e-3)
    assert times.hbm == pytest.approx(536 / 819, rel=1e-3)
    assert times.ici == pytest.approx(23.7 / 100, rel=1e-3), "two axes of an open mesh"
    assert times.dcn == 0
    assert (times.bound, times.limited_by) == (times.hbm, "HBM")
    assert times.apart == pytest.approx(times.mxu + times.hbm + times.ici)


@pytest.mark.parametrize(
    ("name", "links", "speed"),
    [("v4-16", 3, 135), ("v4-128", 6, 270), ("v5e-16", 2, 100), ("v6e-256", 4, 400), ("v5p-128", 6, 600),
     ("2xv4-16", 0, 6.25), ("v3-8", 2, 100)],
)  # fmt: skip
def test_links_add_up(name: str, links: int, speed: float) -> None:
    assert wire_seconds(1e9, links, target(name)) == pytest.approx(1 / speed)


def test_what_goes_between_slices_is_apart_from_what_goes_within() -> None:
    between = Exchange(kind="all-reduce", axes=("dcn",), times=1, wire_bytes=1e9, seconds=0.16)
    times = step(program(exchanges=(*program().exchanges, between)), target("2xv4-16"))
    assert times.dcn == pytest.approx(0.16)
    assert times.ici == pytest.approx(step(program(), target("v4-16")).ici)


def test_a_step_is_never_likelier_to_be_faster_than_its_bound() -> None:
    for generation in PUBLISHED:
        times = step(
            program(),
            target(f"{generation}-16" if generation not in ("v2", "v3") else f"{generation}-32"),
        )
        short, long = likely(times, published(generation))
        assert times.bound <= short < long


def test_a_program_that_only_computes_reaches_the_published_part_of_the_peak() -> None:
    times = step(
        program(hbm_bytes=1e9, exchanges=(), flops=40e12, model_flops=39.4e12), target("v5e-16")
    )
    short, long = likely(times, published("v5e"))
    assert (short, long) == (pytest.approx(0.2 / 0.64), pytest.approx(0.2 / 0.21))


def test_hours_are_those_of_the_tokens() -> None:
    going = pace(finding(), Work(1e9, "tokens"))
    assert going is not None
    steps = 1e9 / (16 * 4096)
    assert going.hours == tuple(pytest.approx(steps * seconds / 3600) for seconds in going.step)
    assert going.chip_hours[0] == pytest.approx(16 * going.hours[0])
    assert going.per_second[0] == pytest.approx(16 * 4096 / going.step[0])


def test_one_target_is_told_in_full() -> None:
    text = " ".join(page("lm", [finding()], Work(1e9, "tokens")).split())
    parts = [
        "yes: 4.80 GiB of the 15.75 GiB",
        "16 rows of 4,096 tokens a step; 1.24 G parameters",
        "by HBM: MXU 239 ms",
        "23.7 GB a chip by 289 all-gather along fsdp",
        "20% of that again",
        "1B tokens",
        "chip-hours",
        "libtpu 0.0.42.1",
    ]
    assert [part for part in parts if part not in text] == [], text


def test_several_targets_are_tables_with_the_reasons_below() -> None:
    other = Finding(target="v5e-4", fit="no", reason="it needs 26.09 GiB", needed_bytes=28_014_000_000,
                    limit_bytes=int(15.75 * 2**30))  # fmt: skip
    text = page("lm", [finding(), other], Work(1e9, "tokens"))
    rows = text.splitlines()
    assert rows[2].startswith("Target")
    assert "v5e-16" in rows[3]
    assert rows[4].split() == ["v5e-4", "4", "no", "26.09", "GiB", "15.75", "GiB"]
    assert [row.split()[0] for row in rows[6:8]] == ["Target", "v5e-16"], "how long it takes"
    assert "v5e-4: it needs 26.09 GiB" in text


def test_no_line_of_a_page_is_wider_than_a_terminal() -> None:
    names = ["v4-128", "v5e-16", "2xv5e-256"]
    exchanges = program().exchanges
    between = replace(exchanges[0], axes=("dcn", "data"), wire_bytes=4.876e9)
    sent = program(exchanges=(*exchanges, between), asked_flops=1.0)
    findings = [finding(name, program=sent, warnings=("word " * 30,)) for name in names]
    title = "lm " + " ".join(f"--flag-{number}=value" for number in range(12))
    for shown in (findings, findings[:1], findings[2:]):
        lines = page(title, shown, Work(1e10, "tokens")).splitlines()
        assert max(map(len, lines)) <= 80, max(lines, key=len)
        assert lines == [line.rstrip() for line in lines]


def test_what_takes_little_memory_is_told_in_mib() -> None:
    assert [memory(size) for size in (2**30, 0.1 * 2**30, 2**26, 30_000)] == [
        "1.00 GiB", "0.10 GiB", "64 MiB", "0.0286 MiB"
    ]  # fmt: skip
    small = finding(program=program(peak_bytes=45_000_000, argument_bytes=300_000))
    alone = page("mlp", [small], Work(100, "steps"))
    assert "yes: 42.9 MiB of the 15.75 GiB" in alone
    for text in (alone, page("mlp", [small, small], Work(100, "steps"))):
        assert "0.0 GiB" not in text
        assert "0.00 GiB" not in text


def test_what_is_known_of_memory_alone_has_no_pace() -> None:
    only_memory = finding(program=program(analysed=False))
    assert pace(only_memory, Work(1, "steps")) is None
    assert "yes: 4.80" in page("lm", [only_memory], Work(1, "steps"))
    assert "Per s" not in page("lm", [only_memory, only_memory], Work(1, "steps"))


def test_json_has_the_figures_as_numbers() -> None:
    (figures,) = as_json([finding()], Work(100, "steps"))
    assert figures["chips"] == 16
    assert figures["step_seconds"]["bound"] == pytest.approx(0.6545, rel=1e-3)  # type: ignore[index]
    assert figures["pace"]["unit"] == "steps"  # type: ignore[index]


class WithRemat(TrainConfig):
    """A configuration with `remat`, like that of a language model."""

    remat: str = "none"


def test_advice_tries_what_costs_no_speed_first() -> None:
    tried = changes(WithRemat(batch=64), target("v4-16"))
    assert [flags(change) for change in tried] == [
        "--fsdp=0",
        "--fsdp=0 --remat=dots",
        "--fsdp=0 --remat=full",
        "--fsdp=0 --remat=full --batch=32",
        "--fsdp=0 --remat=full --batch=16",
        "--fsdp=0 --remat=full --batch=8",
    ]
    assert changes(TrainConfig(batch=8, fsdp=8), target("v4-16")) == [], "it has no --remat"


def test_a_larger_slice_is_the_smallest_that_can_hold_it() -> None:
    gib = 2**30
    assert larger(target("v5e-4"), 26 * gib) == target("v5e-8")
    assert larger(target("2xv4-8"), 100 * gib) == target("2xv4-32")
    assert larger(target("v6e-256"), 100 * gib) is None


# What is likely ------------------------------------------------------------------------------------------------------

#: Llama 2 7B with rows of 2,048 tokens, 2 rows and 218 TFLOP a chip by the compiler, and the tokens a second of a chip
#: that a plain port reached
MODEL_FLOPS = 4096 * LmConfig(
    layers=32, dim=4096, heads=32, kv_heads=32, ff=11_008, vocab=32_000, tied=False
).flops_per_token(2048)  # fmt: skip
LLAMA_7B = {"v4-128": (0.05, 1079), "v5e-64": (0.2, 1021), "v6e-64": (0.284, 3627)}


@pytest.mark.parametrize("name", LLAMA_7B)
def test_a_plain_port_and_tuned_programs_are_in_the_range(name: str) -> None:
    sent, measured = LLAMA_7B[name]
    on = target(name)
    gather = Exchange(kind="all-gather", axes=("fsdp",), times=64, wire_bytes=57e9, seconds=sent)
    compiled = program(flops=218.4e12, model_flops=MODEL_FLOPS, hbm_bytes=1e11, exchanges=(gather,))
    going = pace(finding(name, program=compiled, tokens=4096 * on.chips), Work(10e9, "tokens"))
    assert going is not None
    fast, slow = (speed / on.chips for speed in going.per_second)
    assert slow < measured < fast
    assert slow > 0.6 * measured, "the range begins near the plain port"
    least, most = published(on.chip.name)
    mfu = measured * MODEL_FLOPS / 4096 / on.chip.tflops / 1e12
    assert least <= mfu < least + 0.01 < most


def test_the_range_is_narrowed_to_what_own_jobs_reached() -> None:
    work = Work(1e9, "tokens", {"v5e": (0.3, 0.4), "v4": (0.01, 0.02)})
    assert work.part_of_peak(target("v5e-16")) == (0.3, 0.4)
    assert work.part_of_peak(target("v6e-16")) == published("v6e")
    assert work.part_of_peak(target("v4-16")) == (0.01, 0.02), "they are unlike what is published"
    assert narrowed((0.1, 0.3), "v5e") == (published("v5e")[0], 0.3)
    going, usual = pace(finding(), work), pace(finding(), Work(1e9, "tokens"))
    assert going
    assert usual
    assert usual.hours[0] < going.hours[0] < going.hours[1] < usual.hours[1]
    assert "30% to 40% of the peak is reached, as your own jobs did on v5e" in " ".join(
        page("lm", [finding()], work).split()
    )


def test_what_a_change_gives_is_said_in_memory_operations_and_bound() -> None:
    more = program(peak_bytes=program().peak_bytes - 2**30, flops=56.5e12)
    says = gain(finding(), finding(program=more))
    assert says == "1.00 GiB less memory, 20% more operations; bound 1.00 times as long, by HBM"
    misfit = finding(fit="no", reason="it needs 20 GiB", program=None)
    assert gain(misfit, finding()) == "it fits: 4.80 GiB"
    assert gain(finding(), misfit) == "it does not fit: it needs 20 GiB"


def test_a_change_is_of_settings_or_of_arguments_and_the_mesh() -> None:
    order = Order(
        function="workloads.check.bundled:step",
        target="v4-8",
        arguments={"config": {"remat": "none", "batch": 8}},
    )
    assert changed(order, {"remat": "full"}).arguments == {"config": {"remat": "full", "batch": 8}}
    own = changed(Order(function="train:step", target="v4-8"), {"remat": "full", "mesh": "fsdp=-1"})
    assert (own.arguments, own.mesh) == ({"remat": "full"}, "fsdp=-1")
