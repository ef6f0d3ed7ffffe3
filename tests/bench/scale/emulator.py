"""The emulator with simulated hosts, in place of `python -m tpujob.emulator`. SCALE_HOSTS: of each generation in each
zone."""

from __future__ import annotations

import os
import sys

from tests.bench.scale.farm import SimulatedFarm
from tpujob.emulator.__main__ import main
from tpujob.emulator.driver import FarmClient

if __name__ == "__main__":
    sys.exit(
        main(
            farm_of=lambda args, storage: SimulatedFarm(
                storage, FarmClient(args.farm_ready).ssh_port
            ),
            hosts_per_generation=int(os.environ["SCALE_HOSTS"]),
        )
    )
