"""What planted bugs are made with. They patch what is public: functions, classes and numbers without an underscore."""

from __future__ import annotations

import contextlib
import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from unittest import mock

from tpujob.domain.lifecycle import apply
from tpujob.engine.reconciler import Reconciler

Patch = contextlib.AbstractContextManager[Any]


def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Patch:
    """While it is entered, the attribute is what `make` makes of the real one."""
    return mock.patch.object(owner, name, make(getattr(owner, name)))


def everywhere(real: Callable[..., Any], make: Callable[[Any], Any]) -> Patch:
    """While it is entered, whoever of tpujob has imported the function has what `make` makes of it."""
    stack, planted = contextlib.ExitStack(), make(real)
    for name, module in [*sys.modules.items()]:
        if name.startswith("tpujob.") and getattr(module, real.__name__, None) is real:
            stack.enter_context(mock.patch.object(module, real.__name__, planted))
    return stack


def folded(change: Callable[[Any, Any, Any], Any]) -> Patch:
    """While it is entered, an event makes of a job what `change` makes of (job, event, what it makes really)."""
    return everywhere(apply, lambda real: lambda job, event: change(job, event, real(job, event)))


def ticking(**parts: Callable[[Reconciler], Any]) -> Patch:
    """While it is entered, a tick works with these parts in the place of its own."""

    def make(real: Any) -> Any:
        def tick(self: Reconciler, job_id: str) -> Any:
            other, actor = copy.copy(self), copy.copy(self.actor)
            other.actor = actor
            for name, part in parts.items():
                planted = part(self)
                for whose in (other, actor):
                    if hasattr(whose, name):
                        setattr(whose, name, planted)
            return real(other, job_id)

        return tick

    return replaced(Reconciler, "tick", make)


class Instead:
    """Something with other methods in the place of some of its own."""

    def __init__(self, real: Any, **methods: Callable[..., Any]) -> None:
        self.real, self.methods = real, methods

    def __getattr__(self, name: str) -> Any:
        return self.methods[name] if name in self.methods else getattr(self.real, name)


# The bugs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlantedBug:
    plant: Callable[[], Patch]
    where: str | int  #: the story, or the short seed, that shows it soon
    rule: str  #: the invariant that it breaks there


#: by name
BUGS: dict[str, PlantedBug] = {}


def bug(where: str | int, rule: str) -> Callable[[Callable[[], Patch]], Callable[[], Patch]]:
    """Put a function that plants a bug into `BUGS`."""

    def put(plant: Callable[[], Patch]) -> Callable[[], Patch]:
        BUGS[plant.__name__] = PlantedBug(plant, where, rule)
        return plant

    return put
