"""The table of types against a second copy; errors of unknown types; and that it imports nothing heavy."""

import csv
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from tpujob.contract.chips import CHIPS
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.prices import LIST
from tpujob.errors import BadSpec
from workloads.frame.chips import PUBLISHED

TABLE = Path(__file__).with_name("accelerator_table.csv")


def rows() -> list[dict[str, str]]:
    with TABLE.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def facts_of(type: str) -> dict[str, object]:
    found = accelerators.find(type)
    facts = {
        key: value for key, value in asdict(found).items() if key not in {"known", "chip", "row"}
    }
    return {
        **facts,
        "api_enum": found.row.api_enum,
        "system_image": found.row.system_image,
        "hbm_gib_per_chip": found.chip.hbm_gib,
        "peak_bf16_tflops_per_chip": found.chip.tflops,
        "hbm_gbps_per_chip": found.chip.hbm_gbps,
    }


def test_every_type_and_no_other_is_known() -> None:
    assert [row["type"] for row in rows()] == list(accelerators.ALL)


def test_every_fact_of_every_type_is_as_documented() -> None:
    wrong = [
        f"{row['type']}: {key} is {value}, should be {row[key]}"
        for row in rows()
        for key, value in facts_of(row["type"]).items()
        if str(value) != row[key]
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    ("type", "api"), [("v5e-8", "v5litepod-8"), ("v5litepod-8", "v5litepod-8"), ("v4-8", "v4-8")]
)
def test_canonical_spelling(type: str, api: str) -> None:
    assert accelerators.canonical(type) == api
    assert accelerators.find(type).type == api


@pytest.mark.parametrize(
    ("type", "error"),
    [
        ("v4-15", "v4-15: no such type; nearest: v4-16, v4-8"),
        ("v4-999999", "nearest: v4-6144, v4-6016"),
        ("v5e-7", "nearest: v5litepod-8, v5litepod-4"),
        ("V4-16", "'V4-16': no such type; nearest: v4-16"),
        ("tpu-v4-16", "nearest: v4-16"),
        ("v5p-7", "nearest: v5p-8"),
        ("v6e-10", "nearest: v6e-8"),
        ("v9-012", "no such type"),
        ("v4-24z", "no such type"),
        ("a100", "no such type; there are types"),
        ("", "'': no such type"),
        ("$(reboot)\x1b[2J", r"'$(reboot)\x1b[2J': no such type"),
        ("v4-" + "9" * 5000, "no such type"),
        ("tpu7x-8", "Compute Engine"),
        ("v7x-8", "Compute Engine"),
        ("tpu8t-16", "Compute Engine"),
        ("tpu-8i-4", "Compute Engine"),
        ("8t-16", "Compute Engine"),
        ("tpu9-64", "Compute Engine"),
    ],
)
def test_the_error_of_an_invalid_type_names_the_nearest(type: str, error: str) -> None:
    with pytest.raises(BadSpec) as raised:
        accelerators.find(type)
    assert error in raised.value.message
    assert len(raised.value.message) < 250


@pytest.mark.parametrize(
    ("type", "generation", "chips", "hosts", "runtime"),
    [
        ("v6e-512", "v6e", 512, 128, "v2-alpha-tpuv6e"),  # a size that no table has
        ("v5e-12", "v5e", 12, 3, "v2-alpha-tpuv5-lite"),
        ("v4-24", "v4", 12, 3, "tpu-ubuntu2204-base"),  # cores
        ("v5p-40960", "v5p", 20480, 5120, "v2-alpha-tpuv5"),
        ("v9x-16", "v9x", 16, 4, "v2-alpha-tpuv9x"),  # a generation that no table has counts chips
        ("v9x-1", "v9x", 1, 1, "v2-alpha-tpuv9x"),
    ],
)
def test_a_type_in_no_table_follows_from_its_name(
    type: str, generation: str, chips: int, hosts: int, runtime: str
) -> None:
    facts = accelerators.find(type)
    assert not facts.known
    assert (facts.generation, facts.chips, facts.hosts) == (generation, chips, hosts)
    assert facts.row.system_image == runtime
    assert facts.chips_per_host * hosts == chips
    for pricing in ("spot", "on-demand", "reserved"):
        assert (LIST.usd_per_hour(type, "mars-north1-a", pricing)) is None, "unknown, not free"


def test_a_name_in_no_table_is_doubted_with_the_likely_intended_one() -> None:
    assert accelerators.doubts(["v4-8", "v5e-8"], ["us-central2-b"]) == []
    doubts = accelerators.doubts(["v5litepo-8", "v9x-16"], ["us-centrall2-b", "mars-north1-a"])
    assert doubts[0].startswith("tpujob does not know v5litepo-8 (did you mean v5litepod-8")
    assert doubts[1] == "tpujob does not know v9x-16; its size is derived from its name"
    assert doubts[2] == "tpujob does not know the zone us-centrall2-b (did you mean us-central2-b?)"
    assert doubts[3] == "tpujob does not know the zone mars-north1-a"


@pytest.mark.parametrize(
    ("type", "zone", "may", "listed"),
    [
        ("v4-8", "us-central2-b", True, True),
        ("v4-8", "europe-west4-a", False, False),  # both are known, and do not go together
        ("v4-8", "mars-north1-a", True, False),
        ("v9x-16", "europe-west4-a", True, False),
        ("v6e-512", "us-east5-a", True, False),
        ("v6e-512", "us-west4-a", False, False),  # which has no v6e
    ],
)
def test_the_tables_alone_rule_out_a_type(type: str, zone: str, may: bool, listed: bool) -> None:
    assert accelerators.may_have(type, zone) is may
    assert accelerators.in_table(type, zone) is listed


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


def test_every_chip_is_offered_and_has_published_figures() -> None:
    assert list(CHIPS) == list(accelerators.GENERATIONS) == list(PUBLISHED)
