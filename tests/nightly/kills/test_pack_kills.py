"""A pack that is killed leaves no shard visible that is not verified, and the same command makes the whole set.

`make kills` tries 50 points.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.contract.data.test_pack import some, tree

POINTS = 50 if "TPUJOB_KILLS" in os.environ else 3


def test_a_killed_pack_shows_nothing_unverified_and_can_be_run_again(tmp_path: Path) -> None:
    tree(tmp_path / "source", some(400))
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.contract.data.killed_pack",
            tmp_path / "source",
            tmp_path,
            str(POINTS),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=True,
    )
    points = list(map(json.loads, ran.stdout.splitlines()))
    assert len(points) == POINTS
    assert sum(point["status"] == 9 for point in points) == POINTS, "each was killed"
    assert sum(point["wrong"] for point in points) == 0, "each visible shard is whole"
    assert all(point["same"] for point in points), "and in the end the set is that of an easy run"
    assert any(point["shards"] and not point["manifest"] for point in points)
