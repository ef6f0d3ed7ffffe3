"""What planted bugs are made with."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any
from unittest import mock

Patch = contextlib.AbstractContextManager[Any]


def replaced(owner: Any, name: str, make: Callable[[Any], Any]) -> Patch:
    """While it is entered, the attribute is what `make` makes of the real one."""
    return mock.patch.object(owner, name, make(getattr(owner, name)))
