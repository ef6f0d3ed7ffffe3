"""The emulator with simulated hosts, in place of `python -m tpujob.emulator`. SCALE_HOSTS: of each generation in each
zone."""

import argparse
import json
import os
import sys

from tests.bench.scale.farm import SimulatedFarm
from tests.bench.scale.seeded import PROGRAMS, Programs
from tpujob.emulator.__main__ import main


def _farm(args: argparse.Namespace, storage: str) -> SimulatedFarm:
    """The hosts answer at the port of the real farm, which is up, too."""
    programs = Programs(args.state / PROGRAMS)
    return SimulatedFarm(
        storage, lambda: int(json.loads(args.farm_ready.read_text())["ssh_port"]), programs.of
    )


if __name__ == "__main__":
    sys.exit(main(farm_of=_farm, hosts_per_generation=int(os.environ["SCALE_HOSTS"])))
