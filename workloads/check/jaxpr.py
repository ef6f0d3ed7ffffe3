"""Counts the floating-point operations of a program over all devices, from its jaxpr: independent of the compiler, and
before anything is split. Operations that the compiled program has beyond these are repeated ones."""

# JAX and its libraries are typed in part only.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false
# pyright: reportUnknownArgumentType=false

from __future__ import annotations

import math
from typing import Any, NamedTuple


class Asked(NamedTuple):
    """The operations of all devices in one step."""

    flops: float = 0  #: of matrix products and convolutions
    kernel_flops: float = 0  #: of `flops`, in kernels whose author does not say what they cost
    #: of `flops`, computed a second time for the gradients (rematerialisation)
    again_flops: float = 0

    @property
    def model_flops(self) -> float:
        """The operations of the model, each once: the numerator of MFU. Of attention they are those that its kernel
        computes."""
        return self.flops - self.again_flops

    def __add__(self, other: tuple[Any, ...]) -> Asked:
        return Asked(*(left + right for left, right in zip(self, other, strict=True)))

    def times(self, factor: float) -> Asked:
        return Asked(*(value * factor for value in self))


def count(jaxpr: Any) -> Asked:
    """Return the operations of a jaxpr. The body of a scan counts once for each iteration, a recomputation each time, a
    condition as its most expensive branch. A `while` counts once: its number of iterations is unknown."""
    total = Asked()
    for equation in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        asked = _of(equation)
        if _AGAIN in str(equation.source_info.name_stack):
            asked = asked._replace(again_flops=asked.flops)
        total += asked
    return total


#: the name that JAX gives to what `jax.checkpoint` computes a second time
_AGAIN = "rematted_computation"


def _of(equation: Any) -> Asked:
    name, parameters = equation.primitive.name, equation.params
    if name == "dot_general":
        return _product(equation)
    if name == "conv_general_dilated":
        return _convolution(equation)
    if name == "scan":
        return count(parameters["jaxpr"]).times(parameters["length"])
    if name == "cond":
        return max(map(count, parameters["branches"]))
    if name == "shard_map":
        mesh, manual = parameters["mesh"], parameters["newly_manual_axes"]
        return count(parameters["jaxpr"]).times(math.prod(mesh.shape[axis] for axis in manual))
    if name == "pallas_call":
        return _kernel(parameters)
    total = Asked()
    for value in parameters.values():
        for inner in value if isinstance(value, tuple | list) else (value,):
            if hasattr(inner, "eqns") or hasattr(inner, "jaxpr"):
                total += count(inner)
    return total


def _kernel(parameters: Any) -> Asked:
    """Return the cost estimate of a kernel's author, else the operations of its body at all computed grid places."""
    estimate = parameters.get("cost_estimate")
    if estimate is not None:
        return Asked(estimate.flops)
    grid = [size for size in parameters["grid_mapping"].grid if isinstance(size, int)]
    flops = count(parameters["jaxpr"]).times(_computed(parameters["name"], grid)).flops
    return Asked(flops, flops)


def _computed(name: str, grid: list[int]) -> int:
    """Return how many places of a kernel's grid are computed. JAX's splash attention has a grid of heads and of n x n
    blocks of scores, and skips the blocks that the mask hides. The mask of the programs here is the causal one."""
    places, n = math.prod(grid), grid[-1]
    return places * (n + 1) // (2 * n) if name.startswith("splash_mha") else places


def _product(equation: Any) -> Asked:
    left = equation.invars[0].aval
    (contracted, _), _ = equation.params["dimension_numbers"]
    result = equation.outvars[0].aval
    summed = math.prod(left.shape[d] for d in contracted)
    return Asked(2 * math.prod(result.shape) * summed)


def _convolution(equation: Any) -> Asked:
    """Places in the padding count too: there are few of them in what people write."""
    kernel, result = equation.invars[1].aval, equation.outvars[0].aval
    numbers = equation.params["dimension_numbers"]
    outputs = kernel.shape[numbers.rhs_spec[0]]
    summed = math.prod(kernel.shape) // outputs
    return Asked(2 * math.prod(result.shape) * summed // equation.params["batch_group_count"])
