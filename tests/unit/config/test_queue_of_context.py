"""The queue of a context: shares, limits, quota."""

from __future__ import annotations

import pytest

from tpujob.config import context
from tpujob.config.queue import queue_settings
from tpujob.domain.capacity.settings import OwnerLimits
from tpujob.errors import BadSpec

HEAD = """name: lab
project: my-lab-4711
zones: [us-central2-b]
queue:
"""


def test_shares_limits_and_quota_are_read() -> None:
    found = context.parse(
        HEAD
        + """
  shares: {vision: 2, speech: 0.5}
  limits: {running: 8, queued: 1000}
  types: {v4-8: {chips: 16}}
  high: [ada]
  hand_on: lab
  keep: 10m
  quota: [{type: v4, zone: us-central2-b, pricing: spot, chips: 64}]
""",
        "lab.yaml",
    )
    settings = queue_settings(found.queue)
    assert settings.weights == {"vision": 2.0, "speech": 0.5}
    assert settings.limits == OwnerLimits(running=8, queued=1000)
    assert settings.by_type == {"v4-8": OwnerLimits(chips=16)}
    assert settings.high == {"ada"}
    assert settings.hand_on == "lab"
    assert settings.keep == 600
    assert settings.quota == {"us-central2-b/v4/spot": 64}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("  shares: {vision: 0}", "lab.yaml:5: queue.shares.vision: must be from 0.001 to 1000"),
        ("  shares: {Vision: 1}", "must be the name of a share"),
        ("  limits: {running: -1}", "lab.yaml:5: queue.limits.running: must be from 0 to"),
        ("  types: {v4-9: {}}", "lab.yaml:5: queue.types"),
        ("  hand_on: all", "lab.yaml:5: queue.hand_on: "),
        ("  keep: 2h", "lab.yaml:5: queue.keep: must be at most 1h, not 2h"),
        (
            "  hand_on: lab\nservice_accounts: {ada@example.org: a@my-lab.iam.gserviceaccount.com}",
            "queue.hand_on: lab does not go with service_accounts",
        ),
        ("  limit: {running: 1}", "lab.yaml:5: queue.limit: no such key; did you mean limits?"),
    ],
)
def test_a_wrong_value_names_its_line(line: str, message: str) -> None:
    with pytest.raises(BadSpec) as raised:
        context.parse(HEAD + line, "lab.yaml")
    assert message in str(raised.value)
