"""The record of what probes have made."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tpujob.doctor.probe.record import Made, Records
from tpujob.errors import BadRequest, StoreError

MADE = Made(
    "tj-probe-1", ("tj-probe-1", "tj-probe-1-no"), "us-west4-a", "v5litepod-1", 0.5, 7.0, "gs://b/x"
)


def test_what_is_kept_is_found_and_what_is_dropped_is_not(tmp_path: Path) -> None:
    records = Records(tmp_path / "probes")
    earlier = replace(MADE, run="tj-probe-0", started_at=1.0)
    with records.locked():
        records.keep(MADE)
        records.keep(earlier)
        assert Records(tmp_path / "probes").all() == [earlier, MADE]
        records.drop(MADE)
        assert records.all() == [earlier]
    assert [slice.name for slice in MADE.slices()] == list(MADE.names)


def test_a_lock_is_held_by_a_process_and_ends_with_it(tmp_path: Path) -> None:
    held = (
        "import sys, time; from pathlib import Path; from tpujob.doctor.probe.record import Records\n"
        f"with Records(Path({str(tmp_path)!r})).locked(): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", held], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as other:
        assert other.stdout
        assert other.stdout.readline() == "held\n"
        with pytest.raises(BadRequest, match="already"), Records(tmp_path).locked():
            pass
        other.kill()
    with Records(tmp_path).locked():
        pass


def test_a_record_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "tj-probe-2.json").write_text('{"run": "tj-probe-2"}')
    with pytest.raises(StoreError, match=r"tj-probe-2\.json cannot be read"):
        Records(tmp_path).all()
