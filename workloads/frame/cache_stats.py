"""How many programs XLA had to compile, and how many it found compiled in the cache. JAX tells; here it is counted.

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
    """So far, by the name of the metric; empty: there is no cache, or nothing was compiled yet."""
    if not _seen[_ASKED]:
        return {}
    found = _seen[_FOUND]
    return {"compile_cache_hits": found, "compile_cache_misses": _seen[_ASKED] - found}


def _hear(event: str, **_: Any) -> None:
    if event in _seen:
        _seen[event] += 1
