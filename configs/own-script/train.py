"""A training loop in plain Python that survives being stopped: it saves its place, and begins where it left off.

Runs anywhere: `python3 train.py --steps 10` keeps its place in ./run; under tpujob it is in the job's bucket.
"""

import argparse
import json
import os
import signal
import sys
import time

INTERRUPTED = 75  # tells tpujob: my place is saved, run me again

WORKDIR = os.environ.get("TPUJOB_WORKDIR", "run")
HOST = int(os.environ.get("TPUJOB_HOST", "0"))
PLACE = f"{WORKDIR}/checkpoints/place.json"


def files():
    """Where the place is kept: a file system, and the path in it."""
    import fsspec  # a local folder and gs:// alike; comes with gcsfs

    return fsspec.core.url_to_fs(PLACE)


def load() -> int:
    system, path = files()
    return json.loads(system.cat_file(path))["step"] if system.exists(path) else 0


def save(step: int) -> None:
    if HOST == 0:  # one host writes, all hosts read
        system, path = files()
        system.makedirs(os.path.dirname(path), exist_ok=True)
        system.pipe_file(path, json.dumps({"step": step}).encode())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--save-every", type=int, default=10)
    parser.add_argument("--seconds", type=float, default=1.0, help="how long a step takes")
    args = parser.parse_args()

    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))

    first = load()
    print(f"going on from step {first}" if first else "starting afresh", flush=True)
    for step in range(first + 1, args.steps + 1):
        time.sleep(args.seconds)  # your training step
        print(f"step {step} of {args.steps}", flush=True)
        if stopping or step % args.save_every == 0 or step == args.steps:
            save(step)
        if stopping and step < args.steps:
            print(f"stopping: saved at step {step}", flush=True)
            return INTERRUPTED
    return 0


if __name__ == "__main__":
    sys.exit(main())
