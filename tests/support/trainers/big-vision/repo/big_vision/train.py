"""A stand-in for big_vision: saves every few steps and resumes from there. JAX takes SIGTERM; it never asks JAX."""

import argparse
import os
import signal
import time

import fsspec

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
parser.add_argument("--workdir", required=True)
given = parser.parse_args()
assert os.environ["BV_JAX_INIT"] == "1"
assert os.environ["TFDS_DATA_DIR"].startswith("gs://")
signal.signal(signal.SIGTERM, lambda *_: None)

TOTAL, EVERY = 1000, 5
system, place = fsspec.core.url_to_fs(f"{given.workdir}/checkpoint.bv-LAST")
first = int(system.cat_file(place)) if system.exists(place) else 0
if first:
    print(f"NOTE: Resuming training from checkpoint {given.workdir}/checkpoint.bv...", flush=True)
for step in range(first + 1, TOTAL + 1):
    time.sleep(0.1 if os.environ["TPUJOB_ATTEMPT"] == "1" else 0)
    print(
        f"I1122 12:00:00.000000 1400 train.py:125] NOTE: Steps:{step}/{TOTAL} [{step / TOTAL:.1%}]",
        flush=True,
    )
    if step == TOTAL or (step % EVERY == 0 and not first):
        system.pipe_file(place, str(step).encode())
