"""A race on the local stack: three zones, of which one refuses, one keeps the request waiting, and one serves."""

import pytest

from tests.support.local_stack import LocalStack

pytestmark = pytest.mark.timeout(900)

COUNT = "for i in $(seq 1 600); do echo count $i; sleep 0.2; done"
ZONES = ["us-east5-b", "us-east5-a", "us-east5-c"]


def test_a_race_over_three_zones_with_a_stockout(stack: LocalStack) -> None:
    stack.run("emulator", "settings", "--create", "20s")
    stack.run("emulator", "stockout", ZONES[0], "--fail")
    stack.run("emulator", "stockout", ZONES[1])
    tpu = {"type": "v6e-4", "zones": ZONES, "pricing": "spot", "race": 3}
    job_id = stack.create("racer", COUNT, tpu=tpu)
    asked = stack.until(job_id, lambda v: v["state"] == "provisioning" and len(v["slices"]) == 3)
    assert [s["zone"] for s in asked["slices"]] == ZONES
    serves = stack.until(job_id, "running")
    assert serves["zone"] == ZONES[2]
    over = stack.until(job_id, lambda v: sum(not s["gone_at"] for s in v["slices"]) == 1)
    assert over["attempt"] == 1
    assert [s["zone"] for s in over["slices"] if s["ready_at"]] == [ZONES[2]], "no other was billed"
    stack.run("emulator", "settings", "--create", "2s")
    stack.run("delete", job_id, "--yes")
    ended = stack.until(job_id, "cancelled")
    assert all(s["gone_at"] for s in ended["slices"])
