"""Notices of the metadata server: preemption, maintenance, and announced maintenance."""

import json
from collections.abc import Iterator

import pytest

from tests.flow.agent.gate import open_gate, start_at_gate
from tests.support.agent_host import Host, MetadataServer, until
from tpujob.agent.metadata import MAX_VALUE, MetadataClient

UPCOMING = "upcoming-maintenance?alt=json"
#: as Google documents it
ANNOUNCED = {
    "can_reschedule": "false",
    "latest_window_start_time": "2026-11-29T04:00:01Z",
    "maintenance_status": "PENDING",
    "type": "SCHEDULED",
    "window_end_time": "2026-11-29T08:00:00Z",
    "window_start_time": "2026-11-29T04:00:00Z",
}
READ = {
    "starts": ANNOUNCED["window_start_time"],
    "ends": ANNOUNCED["window_end_time"],
    "latest": ANNOUNCED["latest_window_start_time"],
    "kind": "SCHEDULED",
    "status": "PENDING",
}
#: the spelling of the API, which is seen in audit logs
AS_THE_API = {
    "windowStartTime": READ["starts"],
    "windowEndTime": READ["ends"],
    "latestWindowStartTime": READ["latest"],
    "type": "SCHEDULED",
    "maintenanceStatus": "PENDING",
}


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[MetadataServer]:
    made = MetadataServer()
    monkeypatch.setenv("GCE_METADATA_HOST", made.address)
    yield made
    made.close()


@pytest.mark.parametrize(
    ("text", "read"),
    [
        (json.dumps(ANNOUNCED), READ),
        (json.dumps(AS_THE_API), READ),
        ("NONE", None),
        ('{"error": "no notifications have been received yet, try again later"}', None),
        ('["window_start_time"]', None),
        ('{"window_start_time": 7}', None),
        (json.dumps(ANNOUNCED) + " " * MAX_VALUE, None),
    ],
)
def test_maintenance_has_two_spellings(server: MetadataServer, text: str, read: object) -> None:
    assert MetadataClient().upcoming() is None, "nothing has that name"
    server.facts[UPCOMING] = text
    assert MetadataClient().upcoming() == read


def test_announced_maintenance_is_in_the_report_and_the_program_is_told_nothing(host: Host) -> None:
    host.metadata.facts[UPCOMING] = json.dumps(ANNOUNCED)
    start_at_gate(host, "exit 0")
    until(lambda: host.bucket.report().get("maintenance"), "the announced maintenance")
    open_gate(host)
    report = host.ended()
    assert (report["exit_code"], report["notice"], report["maintenance"]) == (0, "", READ)
