"""Hollow slices beside slices with real hosts, as one farm."""

from collections.abc import Mapping

from tpujob.emulator.farm_client import FarmApi
from tpujob.emulator.hollow.farm import HOLLOW, HollowFarm
from tpujob.emulator.tpu.records import BringUp, Disturb


class Beside:
    """A `FarmApi`. What a slice is made of is decided when it comes up."""

    def __init__(self, real: FarmApi, hollow: HollowFarm) -> None:
        self._real, self._hollow = real, hollow

    def bring_up(self, wanted: BringUp) -> tuple[str, ...]:
        return (self._hollow if wanted.image == HOLLOW else self._real).bring_up(wanted)

    def guests(self, slice: str) -> tuple[dict[str, str], ...]:
        return self._of(slice).guests(slice)

    def take_down(self, slice: str) -> None:
        self._of(slice).take_down(slice)

    def disturb(self, wanted: Disturb) -> None:
        self._of(wanted.slice).disturb(wanted)

    def switch_on(self, slice: str) -> None:
        self._of(slice).switch_on(slice)

    def slices(self) -> Mapping[str, frozenset[int]] | None:
        real = self._real.slices()
        return None if real is None else {**real, **self._hollow.slices()}

    def _of(self, slice: str) -> FarmApi:
        return self._hollow if self._hollow.has(slice) else self._real
