"""A test of a set whose size no batch divides, on devices that share rows."""

import jax
import numpy as np
import pytest
from flax import nnx
from numpy.typing import NDArray

from workloads.data.bundled import digits
from workloads.data.rows import Rows, RowSource
from workloads.frame.mesh import mesh_of
from workloads.frame.program import Program
from workloads.mlp import MlpConfig
from workloads.mlp.model import MlpWorkload


class Counted:
    """A source that counts how often it was asked for each row."""

    def __init__(self, source: RowSource) -> None:
        self._source = source
        self.asked = np.zeros(len(source), int)

    def __len__(self) -> int:
        return len(self._source)

    def take(self, which: NDArray[np.integer]) -> Rows:
        np.add.at(self.asked, which, 1)
        return self._source.take(which)


@pytest.mark.slow
def test_each_row_counts_once_and_is_read_once() -> None:
    config = MlpConfig(hidden=(16, 8), batch=256, tensor=2)
    program = Program(MlpWorkload(config), mesh_of(config, jax.devices()))
    state = program.first_state()
    source = Counted(digits().test)
    assert len(source) == 360, "one batch and a part"
    result = program.evaluate(state, source)

    rows = source.take(np.arange(360))
    with nnx.use_eager_sharding(False):
        model = MlpWorkload(config).model(nnx.Rngs(config.seed))
    right = np.asarray(model(rows["x"])).argmax(axis=1) == rows["y"]
    assert result["accuracy"] == pytest.approx(right.mean())
    # and once more here; the last one also fills its batch up
    assert (source.asked[:-1] == 2).all()
