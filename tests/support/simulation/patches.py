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
    """Return a patch that sends calls to `change`, with the real function as the first argument."""
    return mock.patch.object(owner, name, _changed(getattr(owner, name), change))


def everywhere(real: Callable[..., Any], change: Callable[..., Any]) -> Patch:
    """Return such a patch of a function, wherever tpujob has imported it."""
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
    """Return a patch by which an event turns a job into `change(job, event, real result)`."""
    return everywhere(apply, lambda real, job, event: change(job, event, real(job, event)))


def ticking(**parts: Callable[[Reconciler], Any]) -> Patch:
    """Return a patch by which a tick works with these parts."""

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
    """A stand-in for an object or a module with some attributes replaced."""

    def __init__(self, real: Any, **attributes: Any) -> None:
        self._real = real
        vars(self).update(attributes)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


# The bugs ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class PlantedBug:
    plant: Callable[[], Patch]
    where: str | int  #: the story or short seed that shows the bug soon
    rule: str  #: the invariant that the bug breaks there


#: by name
BUGS: dict[str, PlantedBug] = {}


def bug(where: str | int, rule: str) -> Callable[[Callable[[], Patch]], Callable[[], Patch]]:
    """Add a function that plants a bug to `BUGS`."""

    def put(plant: Callable[[], Patch]) -> Callable[[], Patch]:
        BUGS[plant.__name__] = PlantedBug(plant, where, rule)
        return plant

    return put


def value_bug(where: str | int, rule: str, owner: Any, attribute: str, value: Any) -> PlantedBug:
    """Return a bug that replaces a number or a function."""
    return PlantedBug(partial(mock.patch.object, owner, attribute, value), where, rule)


def always(value: Any) -> Callable[..., Any]:
    return lambda *args, **kwargs: value
