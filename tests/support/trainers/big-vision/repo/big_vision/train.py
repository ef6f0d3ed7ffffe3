"""A stand-in for big_vision: one layer on generated rows. Its order of work and its lines are those of the real one. So
is what it saves with: TensorFlow's gfile for folders and the newest checkpoint's name, JAX's serialization for arrays.
"""

import argparse
import functools
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
from absl import logging
from jax.experimental.array_serialization import serialization as array_serial
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from tensorflow.io import gfile

parser = argparse.ArgumentParser()
parser.add_argument("--config", required=True)
parser.add_argument("--workdir", required=True)
flags = parser.parse_args()
assert os.environ["TFDS_DATA_DIR"].startswith("gs://")
if os.environ.get("BV_JAX_INIT"):
    jax.distributed.initialize()

TOTAL, SAVE = 600, 100
path = os.path.join(flags.workdir, "checkpoint.bv")
gfile.makedirs(flags.workdir)
logging.set_verbosity(logging.INFO)


def note(text):
    if jax.process_index() == 0:
        logging.info("\u001b[33mNOTE\u001b[0m: %s", text)


everywhere = NamedSharding(Mesh(jax.devices(), ("data",)), PartitionSpec())


def rows(step):
    x = np.random.default_rng(step).standard_normal((64, 256), np.float32)
    return x, x.sum(1)


@functools.partial(jax.jit, out_shardings=everywhere)
def update(state, x, y):
    def loss(weights):
        return jnp.square(x @ weights - y).mean()

    value, gradient = jax.value_and_grad(loss)(state["params"])
    momentum = 0.9 * state["momentum"] + gradient
    state = {
        "count": state["count"] + 1,
        "momentum": momentum,
        "params": state["params"] - 1e-3 * momentum,
    }
    return state, value


def save(step, state):
    name = f"{step:09d}-tmp"

    def committed():  # the old checkpoint goes once the new one has its name in -LAST
        with gfile.GFile(f"{path}-CUR", "w") as file:
            file.write(name)
        old = newest()
        gfile.rename(f"{path}-CUR", f"{path}-LAST", overwrite=True)
        if old:
            gfile.rmtree(f"{path}-{old}")

    gfile.makedirs(f"{path}-{name}")
    folders = [f"{path}-{name}/{key}" for key in sorted(state)]
    arrays = [state[key] for key in sorted(state)]
    manager.serialize_with_paths(arrays, folders, on_commit_callback=committed)


def newest():
    if not gfile.exists(f"{path}-LAST"):
        return ""
    with gfile.GFile(f"{path}-LAST", "r") as file:
        return file.read().strip()


manager = array_serial.GlobalAsyncCheckpointManager()
zeros = np.zeros(256, np.float32)
state = jax.device_put({"count": np.int32(0), "momentum": zeros, "params": zeros}, everywhere)
if last := newest():
    note(f"Resuming training from checkpoint {path}...")
    specs = [array_serial.get_tensorstore_spec(f"{path}-{last}/{key}") for key in sorted(state)]
    loaded = array_serial.run_deserialization([everywhere] * len(state), specs)
    state = dict(zip(sorted(state), loaded, strict=True))
first = int(state["count"])
for step in range(first + 1, TOTAL + 1):
    time.sleep(0.05)  # a step of a larger model
    state, loss = update(state, *rows(step))
    if jax.process_index() == 0:
        logging.info("\u001b[35m[%d]\u001b[0m training_loss = %s", step, float(loss))
        note(f"Steps:{step}/{TOTAL} [{step / TOTAL:.1%}]\nWalltime:1m (0s eval)")
    if step % SAVE == 0 or step == TOTAL:
        save(step, state)
note("Done!")
manager.wait_until_finished()
