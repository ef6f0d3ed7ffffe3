"""A sync that is killed at any byte goes on where it was: the real command as a process, killed by its proxy.

TPUJOB_KILLS is how many points are tried in each direction; `make kills` tries many.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.data.proxy import Proxy, between
from tests.data.rig import Rig, files_in
from tests.emulator import storage_rig

MIB = 1 << 20
KILLS = int(os.environ.get("TPUJOB_KILLS", "3"))
#: bytes that may be under way in the connections of one process when it is killed
UNDER_WAY = 8 * MIB


class Killed:
    """A rig whose syncs are processes of their own, behind a proxy."""

    def __init__(self, folder: Path, url: str) -> None:
        self.rig = Rig(url, folder)
        self.state = folder / "state"
        self.uploads = folder / "storage" / "uploads"

    def run(
        self,
        proxy: Proxy,
        *places: object,
        kill_at: int = 0,
        by: int = signal.SIGKILL,
        fsize: int = 0,
    ) -> tuple[int, str]:
        """The command's exit code and what it says; with `kill_at` it is killed at so many forwarded bytes."""
        env = os.environ | {"STORAGE_EMULATOR_HOST": proxy.url, "TPUJOB_STATE": str(self.state)}
        env.pop("TPUJOB_CONTEXT", None)
        command = [sys.executable, "-m", "tpujob", "data", "sync", *map(str, places)]
        if fsize:
            limit = (
                f"import resource as r, os, sys; r.setrlimit(r.RLIMIT_FSIZE, ({fsize}, {fsize}));"
            )
            command = [
                sys.executable,
                "-c",
                f"{limit} os.execv(sys.argv[1], sys.argv[1:])",
                *command,
            ]
        process = subprocess.Popen(
            command, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        begun = proxy.up + proxy.down

        sent = threading.Lock()

        def watch() -> None:
            enough = kill_at and proxy.up + proxy.down - begun >= kill_at
            if enough and sent.acquire(blocking=False):
                process.send_signal(by)

        proxy.watch = watch
        _, said = process.communicate(timeout=300)
        proxy.watch = lambda: None
        return process.returncode, said


@pytest.fixture
def killed(tmp_path: Path) -> Iterator[Killed]:
    with storage_rig.running(tmp_path / "storage") as server:
        made = Killed(tmp_path, server.url)
        yield made
        made.rig.close()


def points(seed: str, least: int, most: int) -> list[int]:
    chance = random.Random(seed)
    return [chance.randrange(least, most) for _ in range(KILLS)]


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_large_file_goes_on_where_it_was_after_each_kill(killed: Killed) -> None:
    size = 70 * MIB + 321
    data = random.Random(1).randbytes(size)
    killed.rig.write({"large": data})
    back = killed.rig.folder / "back"
    for places in ((killed.rig.source, killed.rig.place), (killed.rig.place, back)):
        with between(killed.rig.url) as proxy:
            kills = 0
            for at in points(str(places[1] == back), 20 * MIB, 60 * MIB):
                code, said = killed.run(proxy, *places, kill_at=at)
                assert code in (0, -9), said
                kills += code != 0
            assert kills, "some were killed"
            code, said = killed.run(proxy, *places)
            assert code == 0, said
            moved = max(proxy.up, proxy.down)
            assert moved <= size + kills * UNDER_WAY + MIB, "what had arrived is not moved again"
    assert killed.rig.stored() == {"large": data}
    assert files_in(back) == {"large": data}
    assert not list(killed.uploads.iterdir()), "no session is left"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_small_files_and_a_large_one_arrive_after_kills(killed: Killed) -> None:
    chance = random.Random(2)
    files = {f"{i:04d}": chance.randbytes(4096) for i in range(600)}
    files["large"] = chance.randbytes(10 * MIB)
    killed.rig.write(files)
    back = killed.rig.folder / "back"
    for places in ((killed.rig.source, killed.rig.place), (killed.rig.place, back)):
        with between(killed.rig.url) as proxy:
            kills = 0
            for at in points(str(places[1] == back), 20_000, 6 * MIB):
                code, said = killed.run(proxy, *places, kill_at=at)
                assert code in (0, -9), said
                kills += code != 0
                for name, data in files_in(back).items() if back.exists() else ():
                    if not name.startswith(".tpujob-parts/"):
                        assert data == files[name], "nothing half-written has its final name"
            assert kills
            code, said = killed.run(proxy, *places)
            assert code == 0, said
            total = sum(map(len, files.values())) + 1000 * len(files)
            moved = proxy.up if places[1] == killed.rig.place else proxy.down
            assert moved <= total + kills * (MIB + UNDER_WAY), "what is there is not moved again"
    assert killed.rig.stored() == files
    assert files_in(back) == files, "and no unfinished file is left"


def test_a_full_disk_is_one_clear_error_and_nothing_has_its_final_name(killed: Killed) -> None:
    """By a limit on the size of a file, as a small disk needs an administrator."""
    assert resource.getrlimit(resource.RLIMIT_FSIZE)[1] == resource.RLIM_INFINITY
    killed.rig.put("data/large", b"x" * (3 * MIB))
    killed.rig.put("data/small", b"y")
    back = killed.rig.folder / "back"
    with between(killed.rig.url) as proxy:
        code, said = killed.run(proxy, killed.rig.place, back, fsize=2 * MIB)
        assert code == 1
        assert "cannot read or write a file: File too large" in said
        assert "Traceback" not in said
        assert not (back / "large").exists()
        assert killed.run(proxy, killed.rig.place, back)[0] == 0
    assert files_in(back) == {"large": b"x" * (3 * MIB), "small": b"y"}


def test_ctrl_c_says_that_the_same_command_goes_on(killed: Killed) -> None:
    killed.rig.write({f"{i}": b"x" * 40_000 for i in range(100)})
    with between(killed.rig.url) as proxy:
        places = killed.rig.source, killed.rig.place
        code, said = killed.run(proxy, *places, kill_at=MIB, by=signal.SIGINT)
        assert code == 130
        assert "The same command goes on." in said
        assert "Traceback" not in said
        assert killed.run(proxy, *places)[0] == 0
    assert len(killed.rig.stored()) == 100
