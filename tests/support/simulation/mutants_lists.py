"""Planted bugs of the lists of all slices: what they are believed in, and for how long."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

from tests.support.simulation.patches import Patch, replaced
from tpujob.domain.observations import Absent, Unknown
from tpujob.engine import slice_cache
from tpujob.engine.slice_cache import SliceCache


def never_by_name() -> Patch:
    """What lists do not show stays unknown."""
    return mock.patch.object(slice_cache, "AHEAD", -1e12)


def missing_in_a_list_is_gone() -> Patch:
    def make(real: Any) -> Any:
        def look(self: Any, one: Any, **given: Any) -> Any:
            seen, listed = real(self, one, **given | {"by_name": False})
            return (Absent() if listed and isinstance(seen, Unknown) else seen), False

        return look

    stack = contextlib.ExitStack()
    stack.enter_context(never_by_name())
    stack.enter_context(replaced(SliceCache, "look", make))
    return stack


def lists_are_acted_upon() -> Patch:
    """Nobody looks again by name before an attempt is ended."""

    def make(real: Any) -> Any:
        return lambda self, one, **given: (real(self, one, **given)[0], False)

    return replaced(SliceCache, "look", make)


def a_list_serves_for_ever() -> Patch:
    stack = contextlib.ExitStack()
    for name in ("FOR_EACH_CALL", "LONGEST"):
        stack.enter_context(mock.patch.object(slice_cache, name, 1e9))
    return stack


MUTANTS: Mapping[str, Callable[[], Patch]] = {
    made.__name__: made
    for made in (
        never_by_name, missing_in_a_list_is_gone, lists_are_acted_upon, a_list_serves_for_ever
    )
}  # fmt: skip
