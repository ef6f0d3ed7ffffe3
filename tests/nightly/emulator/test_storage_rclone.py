"""rclone, which speaks through Google's Go library, finds the emulated Cloud Storage as good as the real one."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.contract.emulator.storage_rig import BUCKET, official, running

pytestmark = pytest.mark.skipif(
    shutil.which("rclone") is None, reason="NOT TESTED: rclone is not installed"
)


def test_rclone_uploads_in_pieces_copies_moves_and_downloads(tmp_path: Path) -> None:
    data, place = os.urandom(20_000_000), f"emulated:{BUCKET}"  # more than a piece of its uploads
    (tmp_path / "large").write_bytes(data)
    with running(tmp_path / "storage") as server, official(server.url) as client:
        configuration = tmp_path / "rclone.conf"
        configuration.write_text(
            f"[emulated]\ntype = google cloud storage\nanonymous = true\nendpoint = {server.url}\n"
        )

        def rclone(*words: str) -> str:
            once = ("--retries", "1", "--low-level-retries", "1")
            return subprocess.run(
                ["rclone", "--config", str(configuration), *once, *words],
                capture_output=True,
                text=True,
                check=True,
                timeout=120,
            ).stdout

        rclone("copy", str(tmp_path / "large"), f"{place}/up")
        rclone("copyto", f"{place}/up/large", f"{place}/twin/copied")
        rclone("moveto", f"{place}/twin/copied", f"{place}/twin/moved")
        assert sorted(rclone("lsf", "-R", "--files-only", place).split()) == [
            "twin/moved",
            "up/large",
        ]
        rclone("copy", f"{place}/twin/moved", str(tmp_path / "back"))
        assert (tmp_path / "back" / "moved").read_bytes() == data
        rclone("delete", place)
        assert not list(client.list_blobs(BUCKET))
