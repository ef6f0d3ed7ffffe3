"""Programs of others on several emulated hosts, unmodified, and several of them at once on one machine."""

import re
import shlex
from pathlib import Path

import pytest

from tests.support.local_stack import LocalStack

pytestmark = pytest.mark.timeout(900)

#: Meets the other hosts, as on a TPU VM or at an address, waits for a file, then adds a number of every process. Its
#: arguments: the file; address, number of hosts, number of this host.
PROGRAM = """
import pathlib, sys, time
import jax
address, *numbers = sys.argv[2:] or [None]
jax.distributed.initialize(address, *map(int, numbers))
import numpy
from jax.experimental.multihost_utils import process_allgather
print("met", flush=True)
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.1)
total = process_allgather(numpy.array(10.0**jax.process_index())).sum().item()
assert "libtpu" not in pathlib.Path("/proc/self/maps").read_text()
place = f"process {jax.process_index()} of {jax.process_count()}, {jax.device_count()} devices"
print(f"{place}, sum {total:g}\\n", end="", flush=True)
"""


def test_the_hosts_of_each_job_meet_in_four_jobs_at_once(stack: LocalStack, tmp_path: Path) -> None:
    go = tmp_path / "go"
    command = f"python3 -c {shlex.quote(PROGRAM)} {go}"
    address = "$TPUJOB_COORDINATOR $TPUJOB_HOSTS $TPUJOB_HOST"
    jobs = {
        stack.create("one", command): 2,
        stack.create("other", f"{command} {address}"): 2,
        stack.create("third", f"{command} {address}"): 2,
        stack.create("several", command, tpu={"type": "v4-16", "slices": 2}): 4,
    }
    for job_id, hosts in jobs.items():
        stack.until(job_id, lambda _, id=job_id, n=hosts: stack.run("logs", id).count("met\n") == n)
    go.touch()
    for job_id, hosts in jobs.items():
        stack.until(job_id, "succeeded")
        log = stack.run("logs", job_id)
        ends = re.findall(r"process (\d) of (\d), (\d+) devices, sum (\d+)", log)
        total = "1" * hosts
        assert sorted(ends) == [
            (str(process), str(hosts), str(4 * hosts), total) for process in range(hosts)
        ], log
