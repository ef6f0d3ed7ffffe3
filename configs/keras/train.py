"""Keras 3 on JAX: a convolutional network on scikit-learn's digits, with the rows of a batch split over all devices."""

import argparse
import os

os.environ["KERAS_BACKEND"] = "jax"

import jax
import keras
from sklearn.datasets import load_digits

from tpujob_events.keras import KerasEvents

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=30)
parser.add_argument("--batch", type=int, default=128, help="rows of a step, on all hosts")
flags = parser.parse_args()

keras.utils.set_random_seed(0)  # the same first weights on all hosts
keras.distribution.initialize()
keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
hosts, host = jax.process_count(), jax.process_index()

x, y = load_digits(return_X_y=True)
x = x.reshape(-1, 8, 8, 1).astype("float32") / 16
rows = len(x) // flags.batch * flags.batch  # whole batches only
x, y = x[host:rows:hosts], y[host:rows:hosts]  # the rows of this host

model = keras.Sequential(
    [
        keras.Input((8, 8, 1)),
        keras.layers.Conv2D(32, 3, activation="relu"),
        keras.layers.Conv2D(64, 3, activation="relu"),
        keras.layers.Flatten(),
        keras.layers.Dense(10),
    ]
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile("adam", loss, metrics=["accuracy"])
saves = keras.callbacks.BackupAndRestore("saves", delete_checkpoint=False)
model.fit(
    x,
    y,
    batch_size=flags.batch // hosts,
    epochs=flags.epochs,
    shuffle=False,  # a resumed run has the same batches
    callbacks=[saves, KerasEvents("saves")],
    verbose=2,
)
