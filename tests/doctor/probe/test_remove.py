"""How what probes made is removed, with a cloud that answers as it is told and a clock turned by hand."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from tpujob.doctor.probe.cloud import SERVICE_OFF, Answer
from tpujob.doctor.probe.record import Made
from tpujob.doctor.probe.run import REMOVING, SETTLED, remove
from tpujob.domain.model import Slice
from tpujob.domain.observations import Absent, Present, SliceSeen, SliceState, Unknown
from tpujob.errors import Transient

MADE = Made("tj-probe-1", ("tj-probe-1", "tj-probe-1-no"), "z", "v5litepod-1", 0.5, 7.0, "gs://b/x")
THERE = Present(SliceState.READY)
OK, LATE = Answer("delete", "OK"), Answer("delete", "DEADLINE_EXCEEDED", "no answer")


@dataclass
class Scripted:
    """`seen`: what there is at each second; the last goes on."""

    seen: dict[float, SliceSeen]
    answers: list[Answer] = field(default_factory=lambda: [OK])
    t: float = 0.0
    deleted: int = 0
    forgotten: list[str] = field(default_factory=list[str])
    said: list[str] = field(default_factory=list[str])
    no_bucket: bool = False

    def now(self) -> float:
        return self.t

    def sleep(self, seconds: float) -> None:
        self.t += seconds

    def look(self, slice: Slice, **_: Any) -> SliceSeen:
        return next(seen for at, seen in sorted(self.seen.items(), reverse=True) if at <= self.t)

    def delete(self, slice: Slice, **_: Any) -> Answer:
        self.deleted += 1
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    def forget(self, slice: Slice) -> None:
        self.forgotten.append(slice.name)

    def clear(self, workdir: str, **_: Any) -> int:
        if self.no_bucket:
            raise Transient("503")
        return 1

    def remove(self, *, unsure: bool = False) -> list[str]:
        self_: Any = self
        return remove(self_, MADE, {MADE.run: unsure}, self_, self.said.append, 5.0)


def test_what_is_there_is_deleted_and_its_key_forgotten() -> None:
    cloud = Scripted({0: THERE, 30: Absent()}, [LATE, LATE, OK])
    assert cloud.remove() == []
    assert cloud.deleted >= 3
    assert set(cloud.forgotten) == set(MADE.names)


def test_what_was_never_there_costs_one_look() -> None:
    cloud = Scripted({0: Absent()})
    assert cloud.remove() == []
    assert (cloud.deleted, cloud.t) == (0, 0.0)


def test_a_request_that_is_still_on_its_way_is_waited_for() -> None:
    cloud = Scripted({0: Absent(), 8: THERE, 15: Absent()})
    assert cloud.remove(unsure=True) == []
    assert cloud.deleted > 0
    nothing = Scripted({0: Absent()})
    assert nothing.remove(unsure=True) == []
    assert nothing.t >= SETTLED


def test_what_cannot_be_seen_is_not_gone() -> None:
    cloud = Scripted({0: Unknown("503")})
    assert cloud.remove() == [MADE.run]
    assert cloud.t >= REMOVING
    assert MADE.run not in cloud.forgotten, "its key is needed"
    assert "tj-probe-1 in z may still be there, and is billed: it is being deleted" in cloud.said


def test_there_is_no_waiting_for_a_service_that_is_off() -> None:
    off = Answer("delete", "PERMISSION_DENIED", "not enabled", read_as=SERVICE_OFF)
    cloud = Scripted({0: Unknown("403")}, [off])
    assert cloud.remove() == [MADE.run]
    assert cloud.t == pytest.approx(0.0)
    assert any("not enabled" in said for said in cloud.said)


def test_objects_that_stay_are_told() -> None:
    cloud = Scripted({0: Absent()}, no_bucket=True)
    assert cloud.remove() == []
    assert cloud.said == ["objects below gs://b/x could not be removed"]
