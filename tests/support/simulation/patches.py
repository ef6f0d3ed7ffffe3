"""The tools of planted bugs. They patch public things: functions, classes and numbers without an underscore."""

import contextlib
import copy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest import mock

from tpujob.domain.lifecycle import apply
from tpujob.engine.reconciler import Reconciler

Patch = contextlib.AbstractContextManager[Any]


def replaced(owner: Any, name: str, change: Callable[..., Any]) -> Patch:
    """While it is entered, calls go to `change`, which is given the real function first."""
    return mock.patch.object(owner, name, _changed(getattr(owner, name), change))


def everywhere(real: Callable[..., Any], change: Callable[..., Any]) -> Patch:
    """The same for a function, wherever tpujob has imported it."""
    modules = [module for name, module in [*sys.modules.items()] if name.startswith("tpujob.")]
    users = [user for user in modules if getattr(user, real.__name__, None) is real]
    changed = _changed(real, change)
    return together(*(mock.patch.object(user, real.__name__, changed) for user in users))


def _changed(real: Callable[..., Any], change: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: change(real, *args, **kwargs)


def together(*patches: Patch) -> Patch:
    stack = contextlib.ExitStack()
    for patch in patches:
        stack.enter_context(patch)
    return stack


def folded(change: Callable[[Any, Any, Any], Any]) -> Patch:
    """While it is entered, an event makes of a job what `change` makes of (job, event, what it makes really)."""
    return everywhere(apply, lambda real, job, event: change(job, event, real(job, event)))


def ticking(**parts: Callable[[Reconciler], Any]) -> Patch:
    """While it is entered, a tick works with these parts in the place of its own."""

    def tick(real: Any, self: Reconciler, job_id: str) -> Any:
        other, actor = copy.copy(self), copy.copy(self.actor)
        other.actor = actor
        for name, part in parts.items():
            planted = part(self)
            for whose in (other, actor):
                if hasattr(whose, name):
                    setattr(whose, name, planted)
        return real(other, job_id)

    return replaced(Reconciler, "tick", tick)


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


def value_bug(where: str | int, rule: str, owner: Any, attribute: str, value: Any) -> PlantedBug:
    """One that replaces a number or a function."""
    return PlantedBug(partial(mock.patch.object, owner, attribute, value), where, rule)


def always(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value
