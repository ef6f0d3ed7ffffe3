"""A slice as the port Hosts is given it: as much of one as it takes to reach its hosts."""

from __future__ import annotations

from tpujob.domain.model import Endpoint, Slice


def slice_at(name: str, *addresses: str) -> Slice:
    """Host i is at the i-th address."""
    return Slice(
        name=name,
        k=1,
        type="v4-16",
        zone="us-central2-b",
        pricing="spot",
        runtime_version="tpu-ubuntu2204-base",
        usd_per_hour=None,
        requested_at=0.0,
        endpoints=tuple(Endpoint(i, address) for i, address in enumerate(addresses)),
    )
