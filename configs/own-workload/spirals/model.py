import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from workloads.data.rows import Dataset, InMemory
from workloads.frame.workload import ByRow, Workload


class Net(nnx.Module):
    def __init__(self, width, rngs):
        split = {"out_sharding": ("embed", "mlp")}, {"out_sharding": ("mlp", "embed")}
        self.first = nnx.Linear(2, width, rngs=rngs, kernel_metadata=split[0])
        self.second = nnx.Linear(width, 2, rngs=rngs, kernel_metadata=split[1])
        self.dropout = nnx.Dropout(0.1, rngs=rngs)
        self.mean = nnx.BatchStat(jnp.zeros(2))

    def __call__(self, x, watch=lambda x: x):
        hidden = watch(self.first(x - self.mean[...]))
        return self.second(self.dropout(jnp.sin(hidden)))


class SpiralsWorkload(Workload):
    title = "two spirals"

    def model(self, rngs):
        return Net(self.config.width, rngs)

    def dataset(self):
        random, label = np.random.default_rng(0), np.arange(1100) % 2
        angle = random.uniform(0, 6, 1100)
        arm = np.stack([np.cos(angle), np.sin(angle)], axis=1) * angle[:, None]
        x = (arm * (1 - 2 * label[:, None])).astype(np.float32)
        rows = {"x": x, "y": label.astype(np.int32)}
        train, test = (
            {name: a[part] for name, a in rows.items()} for part in (slice(1000), slice(1000, None))
        )
        return Dataset(InMemory(train), InMemory(test), classes=2)

    def loss(self, model, batch, watch):
        losses = optax.softmax_cross_entropy_with_integer_labels(
            model(batch["x"], watch), batch["y"]
        )
        model.mean[...] = 0.99 * model.mean[...] + 0.01 * batch["x"].mean(axis=0)
        return ByRow(losses, jnp.ones_like(losses))

    def metrics(self, model, batch):
        right = model(batch["x"]).argmax(axis=1) == batch["y"]
        return {"accuracy": ByRow(right.astype(jnp.float32), jnp.ones(right.shape))}
