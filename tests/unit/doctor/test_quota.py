"""Limits, use and grants joined into rows: which limit holds where, who says what is used, in which unit."""

from types import SimpleNamespace
from typing import Any

import pytest

from tpujob.adapters.google.quota import kind_of_metric
from tpujob.config import context
from tpujob.config.queue import ChipsSetting
from tpujob.doctor.quota import allowances, chips, kind_of, parse_letter, parse_option
from tpujob.errors import BadRequest
from tpujob.ports import ONE_HOST, Held, Limit, QuotaKind

ZONE, REGION, OTHER = "us-central2-b", "us-central2", "europe-west4-a"
V4, V6E = QuotaKind("v4", "spot"), QuotaKind("v6e", "spot")


def limit(
    kind: QuotaKind | None, scope: Any, amount: int | None, place: str = "", **fields: Any
) -> Limit:
    return Limit("m", kind, scope, place, amount, **fields)


def row(
    limits: list[Limit], zone: str = ZONE, kind: QuotaKind = V4, **options: Any
) -> SimpleNamespace:
    rows = allowances(limits, [zone], **options)
    rows_of_kind = [
        row for row in rows if (row["type"], row["pricing"]) == (kind.generation, kind.pricing)
    ]
    assert len(rows_of_kind) == 1, rows_of_kind
    return SimpleNamespace(**rows_of_kind[0], chips=chips(rows_of_kind[0]))


def test_the_smaller_limit_holds() -> None:
    both = [limit(V4, "zone", 64, ZONE), limit(V4, "region", 32, REGION)]
    assert (row(both).zone_limit, row(both).region_limit, row(both).limit) == (64, 32, 32)
    open_region = [limit(V4, "zone", 64, ZONE), limit(V4, "region", None)]
    assert row(open_region).limit == 64
    assert row([limit(V4, "zone", None)]).limit is None


def test_a_place_of_its_own_comes_before_the_rest() -> None:
    limits = [limit(V4, "zone", 8), limit(V4, "zone", 64, OTHER)]
    assert row(limits).limit == 8
    assert row(limits, OTHER).limit == 64
    closed = [limit(V4, "zone", 8), limit(V4, "zone", 0, ZONE)]
    assert allowances(closed, [ZONE]) == []
    assert row(closed, closed_kinds=True).limit == 0


def test_the_rest_is_only_where_the_type_is_offered() -> None:
    limits = [limit(V4, "zone", 8, places=frozenset([OTHER]))]
    assert allowances(limits, [ZONE]) == []
    assert row(limits, OTHER).limit == 8


@pytest.mark.parametrize("first", [0, 1])
def test_of_two_metrics_of_one_kind_the_one_that_was_raised_counts(first: int) -> None:
    names = ("tpu-v4-preemptible", "tpu-v4s-preemptible")
    kinds = {kind_of_metric(f"tpu.googleapis.com/{name}") for name in names}
    assert kinds == {V4}
    limits = [
        Limit(names[first], V4, "zone", "", 0),
        Limit(names[first], V4, "region", "", 128),
        Limit(names[1 - first], V4, "zone", "", 0),
        Limit(names[1 - first], V4, "zone", ZONE, 64),
        Limit(names[1 - first], V4, "region", "", 0),
    ]
    assert (row(limits).zone_limit, row(limits).region_limit) == (64, 128)
    unlimited = [*limits, Limit(names[first], V4, "zone", ZONE, None)]
    assert row(unlimited).zone_limit is None


def test_use_is_in_the_unit_of_the_limit() -> None:
    held = [Held(V4, ZONE, 8), Held(V4, ZONE, 4), Held(V4, OTHER, 64), Held(V6E, ZONE, 4)]
    cores = row([limit(V4, "zone", 64, ZONE)], held=held)
    assert (cores.used, cores.unit, cores.chips) == (24, "cores", 32)
    chips = row([limit(V4, "zone", 64, ZONE, unit="chips")], held=held)
    assert (chips.used, chips.unit, chips.chips) == (12, "chips", 64)
    assert row([], kind=V6E, held=held).used == 4


def test_what_could_not_be_seen_is_not_known() -> None:
    limits = [limit(V4, "zone", 64, ZONE)]
    assert row(limits, held=[]).used == 0
    assert row(limits, held=None).used is None


def test_what_a_zone_that_could_not_be_listed_holds_is_not_known() -> None:
    limits = [limit(V4, "zone", 64)]
    rows = allowances(limits, [ZONE, OTHER], held=[], closed=[OTHER])
    assert [(row["zone"], row["used"]) for row in rows] == [(ZONE, 0), (OTHER, None)]


def test_a_grant_has_a_row_even_without_quota() -> None:
    grants = [
        ChipsSetting(type="v4", zone=ZONE, pricing="spot", chips=32),
        ChipsSetting(type="v4", zone=OTHER, pricing="spot", chips=8),
    ]
    allowance = row([limit(V4, "zone", 0)], grants=grants)
    assert (allowance.granted_chips, allowance.limit, allowance.known) == (32, 0, True)
    assert not row([], grants=grants).known


def test_a_grant_is_not_counted_twice() -> None:
    """v5e has two quotas; what was granted is for slices of several hosts, as far as is known."""
    v5e, serving = QuotaKind("v5e", "spot"), QuotaKind("v5e", "spot", ONE_HOST)
    limits = [limit(v5e, "zone", 64), limit(serving, "zone", 8)]
    rows = allowances(
        limits, [ZONE], grants=[ChipsSetting(type="v5e", zone=ZONE, pricing="spot", chips=64)]
    )
    assert [(row["part"], row["granted_chips"]) for row in rows] == [("", 64), (ONE_HOST, 0)]


@pytest.mark.parametrize(
    ("type", "part"),
    [("v2-8", ONE_HOST), ("v2-32", ""), ("v3-8", ONE_HOST), ("v4-8", ""), ("v5p-8", ""),
     ("v5litepod-8", ONE_HOST), ("v5e-16", ""), ("v6e-8", ""), ("v6e-16", "")],
)  # fmt: skip
def test_which_quota_a_slice_takes(type: str, part: str) -> None:
    assert kind_of(type, "spot").part == part


def test_rows_are_ordered_by_zone_and_generation_and_unknown_quotas_make_none() -> None:
    kinds = [
        V6E,
        QuotaKind("v2", "on-demand"),
        V4,
        QuotaKind("v4", "on-demand"),
        QuotaKind("v4", "reserved"),
    ]
    rows = allowances(
        [limit(None, "project", 600), *(limit(k, "zone", 8) for k in kinds)], [OTHER, ZONE]
    )
    assert [row["zone"] for row in rows] == [OTHER] * 5 + [ZONE] * 5
    assert [f"{row['type']} {row['pricing']}" for row in rows[:5]] == [
        "v2 on-demand", "v4 spot", "v4 on-demand", "v4 reserved", "v6e spot",
    ]  # fmt: skip


# Grants, from a short form and from the e-mail of the TPU Research Cloud --------------------------------------------


LETTER = """
Hello,

Thanks for your interest. You have been granted free access to:

 * 32 on-demand Cloud TPU v4 chips in zone us-central2-b
 * 32 spot Cloud TPU v4
   chips in zone us-central2-b
 * 64 spot Cloud TPU v5e chips in zone europe-west4-b
 * 64 spot Cloud TPU v6e chips in zone us-east1-d
 * 5 on-demand Cloud TPU v2-8 device(s) in zone us-central1-f
 * 1,024 preemptible Cloud TPU v3 cores in zone europe-west4-a

IMPORTANT: 100 people read this in zone 1.
"""


def grant(type: str, zone: str, pricing: str, chips: int) -> dict[str, object]:
    return {"type": type, "zone": zone, "pricing": pricing, "chips": chips}


def test_every_grant_of_a_letter_is_found_in_its_order() -> None:
    grants = parse_letter(LETTER + LETTER)
    assert grants == [
        grant("v4", "us-central2-b", "on-demand", 32),
        grant("v4", "us-central2-b", "spot", 32),
        grant("v5e", "europe-west4-b", "spot", 64),
        grant("v6e", "us-east1-d", "spot", 64),
        grant("v2", "us-central1-f", "on-demand", 20),
        grant("v3", "europe-west4-a", "spot", 512),
    ]
    zones = list(dict.fromkeys(str(g["zone"]) for g in grants))
    made = context.make({"name": "trc", "project": "my-lab-1", "zones": zones, "grants": grants})
    assert len(made.grants) == 6


@pytest.mark.parametrize(("type", "chips"), [("v3", 32), ("v4", 32), ("v5e", 64), ("v6e", 64)])
def test_cores_of_a_grant_are_as_many_a_chip_as_the_generation_has(type: str, chips: int) -> None:
    text = f"64 spot Cloud TPU {type} cores in zone {ZONE}"
    assert parse_letter(text) == [grant(type, ZONE, "spot", chips)]


def test_what_is_no_grant_is_refused() -> None:
    with pytest.raises(BadRequest, match="32 spot Cloud TPU v4 chips in zone us-central2-b"):
        parse_letter("we regret to inform you")
    with pytest.raises(BadRequest, match="v2-7"):
        parse_letter("5 spot Cloud TPU v2-7 devices in zone us-central1-f")
    assert parse_option("v4:us-central2-b:spot:32") == grant("v4", "us-central2-b", "spot", 32)
    for bad in ("", "v4", "v4:us-central2-b:spot:many", "a:b:c:1:2"):
        with pytest.raises(BadRequest, match="is not a grant"):
            parse_option(bad)
