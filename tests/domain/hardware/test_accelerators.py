"""The whole table of types against a second, written-out copy; what an unknown type is answered; how fast it loads."""

from __future__ import annotations

import csv
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from tpujob.domain.hardware import accelerators
from tpujob.errors import BadSpec

TABLE = Path(__file__).with_name("accelerator_table.csv")


def rows() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_every_type_and_no_other_is_known() -> None:
    assert [row["type"] for row in rows()] == list(accelerators.ALL)


def test_every_fact_of_every_type_is_as_documented() -> None:
    wrong = [
        f"{row['type']}: {key} is {value}, should be {row[key]}"
        for row in rows()
        for key, value in asdict(accelerators.find(row["type"])).items()
        if str(value) != row[key]
    ]
    assert not wrong, "\n".join(wrong)


def test_the_facts_of_the_table_are_consistent() -> None:
    for it in accelerators.ALL.values():
        sides = [int(side) for side in it.topology.split("x")]
        product = 1
        for side in sides:
            product *= side
        assert product == it.chips == it.hosts * it.chips_per_host, it
        assert sides == sorted(sides) or it.chips == 4, it


@pytest.mark.parametrize(
    ("type", "api"), [("v5e-8", "v5litepod-8"), ("v5litepod-8", "v5litepod-8"), ("v4-8", "v4-8")]
)
def test_canonical_spelling(type: str, api: str) -> None:
    assert accelerators.canonical(type) == api
    assert accelerators.find(type).type == api


@pytest.mark.parametrize(
    ("type", "says"),
    [
        ("v4-15", "v4-15: no such type; nearest: v4-16, v4-8"),
        ("v4-999999", "nearest: v4-6144, v4-6016"),
        ("v5e-7", "nearest: v5litepod-8, v5litepod-4"),
        ("V4-16", "'V4-16': no such type; nearest: v4-16"),
        ("tpu-v4-16", "nearest: v4-16"),
        ("v5-8", "nearest: v5p-8"),
        ("a100", "no such type; there are types"),
        ("", "'': no such type"),
        ("$(reboot)\x1b[2J", r"'$(reboot)\x1b[2J': no such type"),
        ("v4-" + "9" * 5000, "no such type"),
        ("tpu7x-8", "Compute Engine"),
        ("v7x-8", "Compute Engine"),
    ],
)
def test_an_unknown_type_is_answered_with_the_nearest(type: str, says: str) -> None:
    with pytest.raises(BadSpec) as error:
        accelerators.find(type)
    assert says in error.value.message
    assert len(error.value.message) < 250


def test_zones_of_a_generation_and_of_a_type() -> None:
    assert accelerators.zones("v4") == accelerators.zones("v4-16") == ("us-central2-b",)
    assert accelerators.zones("v5e") == accelerators.zones("v5litepod-8")
    assert "us-central1-c" in accelerators.zones("v2-8"), "one host"
    assert "us-central1-c" not in accelerators.zones("v2-32"), "several hosts: other zones"
    assert set(accelerators.zones("v2")) > set(accelerators.zones("v2-32"))
    for type in accelerators.ALL:
        zones = accelerators.zones(type)
        assert zones
        assert len(zones) == len(set(zones)), type


def test_loading_the_table_imports_nothing_heavy() -> None:
    code = (
        "import sys, tpujob.domain.hardware.accelerators; print(*sorted({m.split('.')[0] for m in sys.modules} "
        "& {'pydantic', 'yaml', 'google', 'jax', 'fabric', 'fastapi', 'rich', 'typer'}))"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert out.stdout.strip() == ""
