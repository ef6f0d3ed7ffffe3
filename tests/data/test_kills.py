"""A sync that is killed at any byte goes on where it was: the real command as a process, killed by its proxy.

TPUJOB_KILLS is how many points are tried in each direction; `make kills` tries many.
"""

from __future__ import annotations

import random
import resource
import signal

import pytest

from tests.data.killed import MIB, UNDER_WAY, Killed
from tests.data.proxy import between
from tests.data.rig import files_in


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_large_file_goes_on_where_it_was_after_each_kill(killed: Killed) -> None:
    size = 70 * MIB + 321
    data = random.Random(1).randbytes(size)
    killed.rig.write({"large": data})
    back = killed.rig.folder / "back"
    for places in ((killed.rig.source, killed.rig.place), (killed.rig.place, back)):
        with between(killed.rig.url) as proxy:
            kills = killed.often(proxy, str(places[1] == back), 20 * MIB, 60 * MIB, *places)
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

    def check() -> None:
        for name, data in files_in(back).items() if back.exists() else ():
            if not name.startswith(".tpujob-parts/"):
                assert data == files[name], "nothing half-written has its final name"

    for places in ((killed.rig.source, killed.rig.place), (killed.rig.place, back)):
        with between(killed.rig.url) as proxy:
            seed = str(places[1] == back)
            kills = killed.often(proxy, seed, 20_000, 6 * MIB, *places, check=check)
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
