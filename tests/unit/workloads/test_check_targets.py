"""The slices that a check knows are those of tpujob's own tables, under libtpu's names."""

import pytest

from tpujob.domain.hardware import accelerators
from workloads.check.topologies import all_types, target, targets
from workloads.frame.config import ConfigError


@pytest.mark.parametrize("name", all_types())
def test_a_slice_is_what_tpujob_says_it_is(name: str) -> None:
    on, facts = target(name), accelerators.find(name)
    assert facts.known, f"{name} is in no table of tpujob"
    assert (on.chips, on.devices) == (facts.chips, facts.devices)
    assert on.topology == f"{facts.generation}:{facts.topology}"
    of_a_chip = on.chip.usable_hbm_gib * on.chip.devices
    assert 0.9 * facts.chip.hbm_gib < of_a_chip <= facts.chip.hbm_gib * 1.01, (
        f"the compiler allows {of_a_chip} GiB of a chip that has {facts.chip.hbm_gib}"
    )


def test_every_usual_slice_of_tpujob_can_be_checked() -> None:
    sizes = {name.replace("v5e", "v5litepod") for name in all_types()}
    powers = [
        name for name, facts in accelerators.ALL.items() if facts.chips & (facts.chips - 1) == 0 and facts.chips <= 2048
    ]  # fmt: skip
    assert set(powers) <= sizes


def test_what_libtpu_must_be_told_beside_a_name() -> None:
    assert target("v4-16").options() == {"chip_config_name": "megacore"}
    assert target("v4-128").options() == {"chip_config_name": "megacore", "wrap": [True] * 3}
    assert target("v5litepod-8").options() == {"chips_per_host_bounds": [2, 4, 1]}
    assert target("v6e-1").options() == {"chips_per_host_bounds": [1, 1, 1]}
    assert target("v6e-128").options() == {"wrap": [False, True, False]}
    assert target("2xv5p-32").options() == {"num_slices": 2}
    assert target("v5e-16").options() == {}


def test_several_slices_count_together() -> None:
    two = target("2xv4-16")
    assert (two.name, two.slices, two.chips, two.chips_per_slice) == ("2xv4-16", 2, 16, 8)


def test_each_target_is_compiled_once() -> None:
    assert [t.name for t in targets("v4-16, v5e-64,v4-16")] == ["v4-16", "v5e-64"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("v4-20", "v4-20: no such type; nearest: v4-16, v4-32"),
        ("v5e-12", "nearest: v5e-16, v5e-8"),
        ("v9-8", "v9-8: no such type; nearest:"),
        ("2xv3-32", "several slices of v3 cannot run one program"),
        ("", "--check needs a type of TPU slice"),
        ("0xv4-16", "no such type"),
    ],
)
def test_what_is_no_slice_is_refused_with_the_nearest(text: str, says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        targets(text)
    assert says in str(refused.value)
