"""A stand-in for MaxText: `key=value` arguments; saves one step after SIGTERM and returns; only 0 is a success. It
gets to `gs://` by fsspec, as Orbax does where TensorFlow is not installed.
"""

import os
import signal
import sys
import time

import fsspec

told = []
signal.signal(signal.SIGTERM, lambda *_: told.append(True))

given = dict(word.split("=", 1) for word in sys.argv[1:])
steps, period = int(given["steps"]), int(given["checkpoint_period"])
assert given["enable_checkpointing"] == "true"
place = f"{given['base_output_directory']}/{given['run_name']}/checkpoints"
system, folder = fsspec.core.url_to_fs(place)


def saved():
    """The steps of which there is a checkpoint."""
    return (
        [int(name.rpartition("/")[2]) for name in system.ls(folder)]
        if system.exists(folder)
        else []
    )


def save(step):
    if os.environ["TPUJOB_HOST"] == "0":
        system.pipe_file(f"{folder}/{step}", b"weights")


first = max(saved(), default=-1) + 1
print(
    f"restoring from this run's directory step {first - 1}" if first else "no checkpoint",
    flush=True,
)
for step in range(first, steps):
    time.sleep(0.1 if os.environ["TPUJOB_ATTEMPT"] == "1" else 0)
    print(
        f"I1122 12:00:00.000000 1400 metric_logger.py:180] completed step: {step}, seconds: 0.287, "
        "TFLOP/s/device: 110.951, Tokens/s/device: 7131.788, total_weights: 7517, loss: 12.021",
        flush=True,
    )
    saves = step % period == 0 or step == steps - 1
    if saves or (told and given.get("enable_autocheckpoint") == "true"):
        save(step)
    if told:
        print("Training stopped: Job received termination signal (SIGTERM).", flush=True)
        break
