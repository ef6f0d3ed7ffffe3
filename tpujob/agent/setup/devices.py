"""Asks the devices of all hosts questions with known answers. Run by itself, by the program's own Python and in its
environment, so that it sees what the program will see: `facts OUT` says what is installed, `check OUT ORDER` asks.

Knows nothing of the agent. OUT is replaced after every stage, so that it also tells where a check got stuck.
"""

# JAX and its libraries are typed in part only, and need not be there at all.
# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingImports=false

from __future__ import annotations

import importlib.util
import inspect
import json
import os
import platform
import sys
from typing import Any, Callable, Dict, List, Optional

ROUNDS = 8  #: products for each device
SIZE, SIZE_ON_CPU = 1024, 128  #: of the square matrices
SILENCE = 20  #: seconds after which JAX takes a silent host for dead

Tell = Callable[..., None]


class Wrong(Exception):
    """The devices are not as expected. `device` names the one that gave a wrong answer; empty: none, or unknown."""

    def __init__(self, text: str, device: str = "", lies: bool = False) -> None:
        super().__init__(text)
        self.device, self.lies = device, lies


def facts() -> Dict[str, Any]:
    """The versions that must be the same everywhere, and whether JAX could use a TPU at all."""
    versions = {"jax": _version("jax"), "jaxlib": _version("jaxlib")}
    versions["libtpu"] = _version("libtpu") or _version("libtpu-nightly")
    versions["python"] = platform.python_version()
    path = os.environ.get("TPU_LIBRARY_PATH", "")
    emulated = "cpu" in os.environ.get("JAX_PLATFORMS", "")
    usable = bool(versions["jax"] and (versions["libtpu"] or os.path.exists(path) or emulated))
    return {"versions": versions, "usable": usable}


def _version(name: str) -> str:
    """Empty: it is not installed."""
    if sys.version_info < (3, 8):
        return "?" if importlib.util.find_spec(name.replace("-", "_")) else ""
    from importlib import metadata

    try:
        return str(metadata.version(name))
    except metadata.PackageNotFoundError:
        return ""


def check(order: Dict[str, Any], tell: Tell) -> None:
    """Every chip is there, every device multiplies right, and all devices together add up right. Raises Wrong."""
    tell(stage="the import of jax")
    import jax

    if order["hosts"] > 1:
        tell(stage="the meeting of all hosts in jax.distributed")
        _join(jax, order)
    tell(stage="the start of the devices")
    local: List[Any] = jax.local_devices()
    everywhere: List[Any] = jax.devices()
    kind = str(local[0].device_kind)
    count, total, spoilt = len(local), len(everywhere), order.get("spoilt")
    tell(devices=count, total=total, kind=kind)
    wrong: List[Wrong] = []  # with one, go on all the same: other hosts wait in the sum
    for stage, ask in (
        ("the count of the chips", lambda: _count(order, local, jax.default_backend())),
        ("the product of matrices on %d devices" % count, lambda: _multiply(jax, local, spoilt)),
        ("the sum over %d devices of all hosts" % total, lambda: _add(jax, everywhere)),
    ):
        tell(stage=stage)
        try:
            ask()
        except Wrong as found:
            wrong.append(found)
    tell(stage="the end")
    if order["hosts"] > 1:
        jax.distributed.shutdown()
    if wrong:
        raise wrong[0]
    tell(ok=True)


def _join(jax: Any, order: Dict[str, Any]) -> None:
    address, patience = order["coordinator"], max(5, int(order["seconds"]))
    wanted = {
        "coordinator_bind_address": address,
        "initialization_timeout": patience,
        "heartbeat_timeout_seconds": SILENCE,
        "shutdown_timeout_seconds": SILENCE,
    }
    known = inspect.signature(jax.distributed.initialize).parameters  # older ones know fewer
    options = {name: value for name, value in wanted.items() if name in known}
    jax.distributed.initialize(address, order["hosts"], order["host"], **options)
    if address.startswith("127."):
        _stay_on_loopback()


def _stay_on_loopback() -> None:
    """The collectives of emulated hosts listen on loopback, not on what this machine's name means. JAX has no setting
    for it; with another JAX that lacks these names, they listen where they like."""
    try:
        from jax._src import distributed, xla_bridge
        from jax._src.lib import _jax  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]

        client: Any = distributed.global_state.client
        ours = _jax.make_gloo_tcp_collectives(distributed_client=client, hostname="127.0.0.1")
        make: Any = xla_bridge.make_cpu_client
    except (ImportError, AttributeError, TypeError):
        return
    xla_bridge.register_backend_factory("cpu", lambda: make(ours), priority=0, fail_quietly=False)


def _count(order: Dict[str, Any], local: List[Any], backend: str) -> None:
    """By chips: some generations show a chip as two devices."""
    if backend == "cpu" and "cpu" not in os.environ.get("JAX_PLATFORMS", ""):
        raise Wrong("jax finds no TPU on this host, only its CPU")
    chips = len({tuple(getattr(d, "coords", None) or (d.id,)) for d in local})
    if order["chips"] and chips * order["hosts"] != order["chips"]:
        expected = order["chips"] / order["hosts"]
        raise Wrong("jax finds %d chips on this host, and %g were expected" % (chips, expected))


def _multiply(jax: Any, local: List[Any], spoilt: Optional[int]) -> None:
    """Whole numbers from -2 to 2, which every format of a TPU holds, and so their products and sums: the answer is
    exact, whatever the order in which a device adds. `spoilt`: the local number of a device that is to seem bad."""
    import numpy as np

    size = SIZE_ON_CPU if local[0].platform == "cpu" else SIZE
    row, column, turn = np.ogrid[:size, :size, :ROUNDS]
    left = np.moveaxis((row * 7 + column * 3 + turn * row) % 5 - 2, 2, 0).astype(np.float32)
    right = np.moveaxis((row * 3 + column * 11 + turn * column) % 5 - 2, 2, 0).astype(np.float32)
    expected = left @ right
    mesh = jax.sharding.Mesh(np.array(local), ("device",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("device"))

    def product(a: Any, b: Any) -> Any:
        a, b = a.astype("bfloat16"), b.astype("bfloat16")
        return jax.numpy.einsum("dtij,dtjk->dtik", a, b, preferred_element_type="float32")

    copies = [np.broadcast_to(x, (len(local), *x.shape)) for x in (left, right)]
    found = jax.jit(product, out_shardings=spread)(*jax.device_put(copies, spread))
    for shard in found.addressable_shards:
        answer = np.array(shard.data)[0]
        if spoilt == local.index(shard.device):
            answer[0, 0, 0] += 1
        different = int((answer != expected).sum())
        if different:
            text = "%s multiplies wrongly: %d of %d numbers of a product with a known answer differ"
            raise Wrong(text % (shard.device, different, answer.size), str(shard.device), lies=True)


def _add(jax: Any, everywhere: List[Any]) -> None:
    import numpy as np

    count = len(everywhere)
    mesh = jax.sharding.Mesh(np.array(everywhere), ("device",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("device"))
    same = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    whole = np.repeat(np.arange(1, count + 1, dtype=np.float32)[:, None], 1024, axis=1)

    def add(x: Any) -> Any:
        return x.sum(0)

    given = jax.make_array_from_callback(whole.shape, spread, whole.__getitem__)
    shards = jax.jit(add, out_shardings=same)(given).addressable_shards
    wrong = [s for s in shards if (np.array(s.data) != count * (count + 1) / 2).any()]
    if wrong:
        one = len(wrong) < len(shards)  # else any device may have spoilt it
        text = "the sum over all %d devices has a known answer, and came out wrong on %s"
        where = str(wrong[0].device)
        raise Wrong(text % (count, where), where if one else "", lies=True)


def main() -> None:
    what, path = sys.argv[1:3]
    result: Dict[str, Any] = {"ok": False, "stage": "its start"}

    def tell(**more: Any) -> None:
        result.update(more)
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            json.dump(result, file)
        os.replace(path + ".tmp", path)

    if what == "facts":
        tell(ok=True, **facts())
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # libraries greet each other there
    try:
        check(json.loads(sys.argv[3]), tell)
    except Wrong as wrong:
        tell(error=str(wrong), wrong=True, device=wrong.device, lies=wrong.lies)
    except Exception as error:
        tell(error="%s: %s" % (type(error).__name__, str(error)[:300]))
    sys.stderr.flush()
    os._exit(0)  # at a normal end JAX would wait for hosts that may be dead


if __name__ == "__main__":
    main()
