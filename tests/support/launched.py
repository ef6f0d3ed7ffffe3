"""A job of two hosts in its second attempt, as it is when its program is started."""

from __future__ import annotations

from typing import Any

from tpujob.domain.model import Attempt, Endpoint, Job, Slice, State, Wish
from tpujob.domain.spec.jobspec import parse

TPU = {"type": "v4-16", "zones": ["us-central2-b"]}


def a_job(**run: Any) -> Job:
    spec = parse({"name": "digits", "tpu": TPU, "run": run or {"command": "python train.py"}})
    slice = Slice(
        name="tj-000042-1",
        k=1,
        type="v4-16",
        zone="us-central2-b",
        pricing="spot",
        runtime_version="tpu-ubuntu2204-base",
        usd_per_hour=1.0,
        requested_at=0.0,
        endpoints=(Endpoint(1, "10.0.1.1"), Endpoint(0, "10.0.1.0", "34.1.2.3")),
    )
    return Job(
        id="000042",
        name="digits",
        user="ada",
        spec=spec,
        state=State.PREPARING,
        wish=Wish.RUN,
        created_at=0.0,
        state_since=0.0,
        bucket="gs://shed",
        bundles=("gs://shed/bundles/a.tar.gz", "bundles/b.tar.gz"),
        slices=(slice,),
        attempts=(Attempt(1, "tj-000042-1", 0.0), Attempt(2, "tj-000042-1", 9.0)),
    )
