"""The time of day for ages follows a machine's clock only when it is set for long."""

from dataclasses import dataclass, field

import pytest

from tpujob.lib.wall_time import BOOT, LASTS, SMALL, WallTime


@dataclass
class Machine:
    booted: float  #: seconds ago
    true: float = 1_000_000.0
    wrong: float = 0.0
    time: WallTime = field(init=False)

    def __post_init__(self) -> None:
        self.time = WallTime(lambda: self.true + self.wrong, lambda: self.booted)

    def later(self, seconds: float) -> None:
        self.true += seconds
        self.booted += seconds

    def error(self) -> float:
        return self.time.now() - self.true


@pytest.fixture
def machine() -> Machine:
    return Machine(booted=BOOT + 1)


@pytest.mark.parametrize("wrong", [-3600.0, -120.0, 120.0, 3600.0])
def test_a_clock_that_is_wrong_for_some_minutes_changes_no_age(
    machine: Machine, wrong: float
) -> None:
    machine.wrong = wrong
    for _ in range(29):
        machine.later(60)
        assert machine.error() == 0
    machine.wrong = 0.0
    machine.later(60)
    assert machine.error() == 0


def test_a_clock_that_stays_as_it_was_set_is_followed_in_the_end(machine: Machine) -> None:
    machine.wrong = -3600.0
    assert machine.error() == 0
    machine.later(LASTS - 1)
    assert machine.error() == 0
    machine.later(1)
    assert machine.error() == -3600.0
    machine.wrong = 0.0
    machine.later(1)
    assert machine.error() == -3600.0
    machine.later(LASTS)
    assert machine.error() == 0


def test_each_setting_has_to_last(machine: Machine) -> None:
    for wrong in (600.0, -600.0, 1200.0, 600.0):
        machine.wrong = wrong
        assert machine.error() == 0
        machine.later(LASTS - 1)
        assert machine.error() == 0


def test_small_corrections_are_followed_at_once(machine: Machine) -> None:
    for wrong in (SMALL - 1, 2 * SMALL - 2, SMALL):
        machine.wrong = wrong
        assert machine.error() == wrong


def test_a_machine_that_has_just_booted_corrects_its_clock() -> None:
    machine = Machine(booted=5, wrong=-86_400.0)
    assert machine.error() == -86_400.0
    machine.wrong = 0.0
    machine.later(10)
    assert machine.error() == 0
