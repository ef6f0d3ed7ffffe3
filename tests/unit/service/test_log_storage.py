"""A log is read from the emulated Cloud Storage as from any other: by the client that the backend uses."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.contract.blobs.storage_network import gcs
from tests.support import long_logs
from tpujob.emulator.storage import StorageServer
from tpujob.service.logs import Logs


@pytest.mark.slow
def test_a_log_in_cloud_storage_is_read_by_line_by_search_and_as_a_whole(tmp_path: Path) -> None:
    server = StorageServer(tmp_path)
    job = replace(long_logs.ended_job(2, "gs://shed"), id="000042")
    try:
        with gcs(server.url) as blobs:
            blobs.ensure_bucket("gs://shed", "us-central2", timeout=10)
            long_logs.ship(blobs, job, 16_000)
            logs = Logs(blobs)
            for attempt, line in ((1, 1), (2, 14_000), (2, 14_001), (1, 16_000)):
                found = logs.window(job, {"attempt": attempt, "of": 3, "line": line, "lines": 9})
                texts = {(x["host"], x["line"]): x["text"] for x in found["lines"]}
                assert texts[3, line] == long_logs.line(line, 3, attempt).decode()
                assert found["total"] == 4 * 16_000
            said = logs.search(job, {"text": "step 15999 "})
            assert [(x["host"], x["line"]) for x in said["matches"]] == [
                (h, 15_999) for h in range(4)
            ]
            whole, cursor, more = b"", "", True
            while more:
                block = logs.block(job, host=2, attempt=1, cursor=cursor)
                whole, cursor, more = whole + block.data, block.cursor, block.more
            assert whole.count(b"\n") == 16_000
            assert block.done
            assert [x.get("line") for x in logs.page(job, host=2, tail=2)["lines"]] == [
                15_999,
                16_000,
            ]
    finally:
        server.stop()
