"""What `tpujob emulator` prints, where the cloud itself plays no part."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.commands import Tpujob, same
from tests.support.golden import golden
from tpujob.cli.commands.emulator import options
from tpujob.cli.commands.emulator.group import status_page

NO_FAULTS: dict[str, Any] = {
    "stockouts": [],
    "quotas": [],
    "calls": [],
    "storage": [],
    "api_bugs": [],
    "max_run_s": 0.0,
    "unreachable": [],
    "bad_hosts": [],
}
HOST = {"index": 0, "address": "127.1.1.1", "physical": "us-central2-b-h001"}
SLICE = {
    "name": "tj-000042-1",
    "job": "000042",
    "type": "v4-8",
    "zone": "us-central2-b",
    "pricing": "spot",
    "state": "READY",
    "queued": "ACTIVE",
    "initiator": "",
    "gone_in_s": None,
    "maintenance": False,
    "unreachable": False,
    "age_s": 95,
    "hosts": [{**HOST, "fault": "nan:step=20", "factor": 1, "silent": False, "hung": True}],
}
ZONES = [
    {"zone": zone, "stock": {"v4": {"hosts": 64, "used": 1}, "v6e": {"hosts": 64, "used": 0}}}
    for zone in ("us-central2-b", "us-east5-a")
]


def test_status() -> None:
    call = {"method": "GetNode", "code": "UNAVAILABLE", "delay_s": 0, "when": "pre", "count": 1}
    bad = {"physical": "us-central2-b-h001", "fault": "nan:step=20"}
    faults = NO_FAULTS | {
        "calls": [call, call | {"count": 3}],
        "api_bugs": ["wedge"],
        "max_run_s": 3600,
        "unreachable": ["us-east5-a"],
        "bad_hosts": [bad],
    }
    found = {"slices": [SLICE], "zones": ZONES, "faults": faults, "schedule": None}
    golden("emulator-status", status_page(found, 80))
    assert "\x1b[1mSlice" in status_page(found, 80, color=True)


def test_status_of_a_cloud_where_nothing_is() -> None:
    found = {"slices": [], "zones": ZONES, "faults": NO_FAULTS, "schedule": None}
    same(status_page(found, 80), "There are no slices.\n\nNo faults are set.")
    found |= {"profile": "bare", "cut": True}
    told = "\n\nHosts are cut off from each other.\n\nNew hosts are bare."
    same(status_page(found, 80), f"There are no slices.\n\nNo faults are set.{told}")


class Willing:
    """An emulator that does all it is asked."""

    def __getattr__(self, _name: str) -> Any:
        return lambda *_words, **_more: {"next": []}


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("api-error GetNode unavailable", "GetNode: the next call answers UNAVAILABLE"),
        ("api-error * OK --count 3", "*: the next 3 calls answer OK"),
        ("api-error GetNode OK --count 0", "GetNode: no call is set to answer OK"),
        ("storage-error", "Cloud Storage: the next request answers 503"),
        (
            "storage-error --method get --count 2 --status 404",
            "Cloud Storage: the next 2 requests (GET) answer 404",
        ),
        ("storage-error --off", "Cloud Storage: no request is set to fail"),
    ],
)
def test_the_answer_to_an_injected_fault_says_what_will_happen(
    tpujob: Tpujob, monkeypatch: pytest.MonkeyPatch, command: str, said: str
) -> None:
    monkeypatch.setattr(options, "client", Willing)
    assert tpujob("emulator", *command.split()).out == f"{said}\n"


def test_a_plan_that_cannot_be_read_names_what_is_wrong(
    tpujob: Tpujob, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "client", Willing)
    none = tmp_path / "none.yaml"
    said = tpujob("emulator", "schedule", str(none), code=2).err
    assert said.endswith(f"Invalid value for FILE: {none}: No such file or directory\n")
    said = tpujob("emulator", "chaos", "--seed", "1", "--rate", "fast", code=2).err
    assert "Invalid value for --rate: 'fast' is neither calm, normal, storm nor a number" in said
