"""Counts the programs that XLA compiled, and those that came from the cache, by JAX's monitoring events.

JAX counts the programs for which it asks its cache; those that it compiles for less than the cache is worth are not
among them. Every host counts its own.
"""

# JAX is typed in part only.
# pyright: reportUnknownMemberType=false

from __future__ import annotations

from typing import Any

_ASKED = "/jax/compilation_cache/compile_requests_use_cache"
_FOUND = "/jax/compilation_cache/cache_hits"

_seen = {_ASKED: 0, _FOUND: 0}


def listen() -> None:
    """Count from now on. Call it once, before the first program is compiled."""
    import jax

    jax.monitoring.register_event_listener(_hear)


def counts() -> dict[str, int]:
    """Return the counts by the name of the metric; empty without a cache, or before the first compilation."""
    if not _seen[_ASKED]:
        return {}
    hits = _seen[_FOUND]
    return {"compile_cache_hits": hits, "compile_cache_misses": _seen[_ASKED] - hits}


def _hear(event: str, **_: Any) -> None:
    if event in _seen:
        _seen[event] += 1
