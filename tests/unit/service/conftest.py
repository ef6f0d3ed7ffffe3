"""A backend in a world of its own."""

import pytest

from tests.support.following import Clock
from tests.support.stage import stage

__all__ = ["stage"]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)
