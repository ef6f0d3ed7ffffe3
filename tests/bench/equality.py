"""Runs that are interrupted again and again, against runs that are not: the same losses and norms of gradients, bit for
bit; and runs that go on with other axes or on other devices: the same within 1e-6.

    python -m tests.bench.equality [--interruptions=20] [--seed=0] [--module=workloads.mlp] [any flag of the program]

Each interruption is SIGTERM or SIGKILL to a random host at a random step, on one host and on two.
"""

import argparse
import random
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from tests.support.warm import Warm
from tests.support.workload_rig import Host, Job

STEPS, EVERY, NEAR = 400, 50, 1e-6
#: What a run on two hosts with two devices each goes on with: hosts, devices of each, flags.
OTHERS = (
    (1, 4, ("--tensor=1",)),
    (1, 4, ("--fsdp=0",)),
    (1, 4, ("--tensor=4",)),
    (1, 2, ("--fsdp=2", "--tensor=1")),
    (2, 2, ("--fsdp=2", "--tensor=2")),
    (1, 1, ()),
)

Numbers = dict[int, tuple[float, float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--interruptions", type=int, default=20)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--module", default="workloads.mlp")
    args, flags = parser.parse_known_args()
    flags = flags or ["--hidden=64,32", "--batch=16"]
    flags = [*flags, f"--steps={STEPS}", f"--checkpoint-every={EVERY}", "--log-every=100000"]
    print(f"--seed={args.seed}: {args.module} {' '.join(flags)}")
    warm, chance, wrong = Warm(), random.Random(args.seed), 0
    with tempfile.TemporaryDirectory() as folder:
        for hosts in (1, 2):
            place = Path(folder, str(hosts))
            place.mkdir()
            job = Job(place, Path(folder), warm)
            job.module = args.module
            expected = job.run(*flags, hosts=hosts)[0].numbers()
            whole, job.workdir = job.workdir, str(place / "interrupted")
            wrong += _interrupted(job, hosts, flags, expected, args.interruptions, chance)
        checkpoints = Path(whole) / "checkpoints"
        shutil.rmtree(checkpoints / str(STEPS))
        for hosts, devices, others in OTHERS:
            job.workdir = str(Path(folder, "-".join(map(str, (hosts, devices, *others)))))
            shutil.copytree(whole, job.workdir)
            steps = job.run(*flags, *others, hosts=hosts, devices=devices)[0].numbers()
            off = max(abs(a - b) for s in steps for a, b in zip(steps[s], expected[s], strict=True))
            wrong += off >= NEAR
            print(f"{hosts} x {devices} {' '.join(others)}: {len(steps)} steps, off by {off:.1e}")
    warm.close()
    sys.exit(f"{wrong} differ" if wrong else 0)


def _interrupted(
    job: Job, hosts: int, flags: list[str], expected: Numbers, times: int, chance: random.Random
) -> int:
    """Run to the end with so many interruptions, in as many runs as it takes; return how many attempts differ."""
    wrong, seen = 0, dict[int, tuple[float, float]]()
    place = Path(job.workdir)
    for number in range(times + 1):
        how = chance.choice((signal.SIGTERM, signal.SIGKILL))
        with job.start(*flags, hosts=hosts) as started:
            at = chance.randrange(1, STEPS // 4)
            if number < times:
                _wait_for_steps(started[0], at)
                chance.choice(started).tell(how)
            codes = [host.code() for host in started]
        numbers = started[0].numbers()
        equal = numbers.items() <= expected.items()
        wrong += not equal
        seen.update(numbers)
        steps = f"steps {min(numbers)} to {max(numbers)}" if numbers else "no step"
        shown = "equal" if equal else "DIFFERENT"
        print(f"{hosts} hosts, {how.name} after {at}: {codes}, {steps}, {shown}", flush=True)
        if STEPS in numbers:  # start again, as there are interruptions left
            shutil.rmtree(place)
    assert wrong or seen.keys() == expected.keys() or times < 4, "not every step was seen"
    return wrong


def _wait_for_steps(host: Host, steps: int) -> None:
    """Wait until the host has made so many steps, or has reached the end."""
    host.until(lambda host: len(host.events("step")) >= steps or STEPS in host.numbers())


if __name__ == "__main__":
    main()
