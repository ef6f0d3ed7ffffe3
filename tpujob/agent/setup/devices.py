"""A script that checks the devices of all hosts with sums and products of known results. The program's Python runs it
in the program's environment: `facts OUT` writes the installed versions, `check OUT ORDER` checks the devices.

The script imports nothing of tpujob. It replaces OUT after every stage, so that OUT shows where a check got stuck.
"""

# JAX and its libraries are typed in part only, and may be missing.
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

ROUNDS = 8  #: products on each device
SIZE, SIZE_ON_CPU = 1024, 128  #: rows of the square matrices
SILENCE = 20  #: seconds without a heartbeat after which JAX takes a host for dead

Tell = Callable[..., None]


class Wrong(Exception):
    """The devices are not as expected. `lies`: a result is wrong; `device` names the device if it is known."""

    def __init__(self, text: str, device: str = "", lies: bool = False) -> None:
        super().__init__(text)
        self.device, self.lies = device, lies


def facts() -> Dict[str, Any]:
    """Return the versions that must be equal on all hosts, and whether JAX could use a TPU."""
    versions = {"jax": _version("jax"), "jaxlib": _version("jaxlib")}
    versions["libtpu"] = _version("libtpu") or _version("libtpu-nightly")
    versions["python"] = platform.python_version()
    path = os.environ.get("TPU_LIBRARY_PATH", "")
    emulated = "cpu" in os.environ.get("JAX_PLATFORMS", "")
    usable = bool(versions["jax"] and (versions["libtpu"] or os.path.exists(path) or emulated))
    return {"versions": versions, "usable": usable}


def _version(name: str) -> str:
    """Return the version of an installed package; empty: not installed."""
    if sys.version_info < (3, 8):
        return "?" if importlib.util.find_spec(name.replace("-", "_")) else ""
    from importlib import metadata

    try:
        return str(metadata.version(name))
    except metadata.PackageNotFoundError:
        return ""


def check(order: Dict[str, Any], tell: Tell) -> None:
    """Check the number of chips, a product on every device, and a sum over all devices. Raises Wrong."""
    tell(stage="the import of jax")
    import jax

    if order["hosts"] > 1:
        tell(stage="the meeting of all hosts in jax.distributed")
        _join_hosts(jax, order)
    tell(stage="the start of the devices")
    local: List[Any] = jax.local_devices()
    everywhere: List[Any] = jax.devices()
    kind = str(local[0].device_kind)
    count, total, spoilt = len(local), len(everywhere), order.get("spoilt")
    tell(devices=count, total=total, kind=kind)
    errors: List[Wrong] = []  # collected, as other hosts wait for this one in the sum
    for stage, run in (
        ("the count of the chips", lambda: _check_chip_count(order, local, jax.default_backend())),
        (
            "the product of matrices on %d devices" % count,
            lambda: _check_products(jax, local, spoilt),
        ),
        ("the sum over %d devices of all hosts" % total, lambda: _check_sum(jax, everywhere)),
    ):
        tell(stage=stage)
        try:
            run()
        except Wrong as error:
            errors.append(error)
    tell(stage="the end")
    if order["hosts"] > 1:
        jax.distributed.shutdown()
    if errors:
        raise errors[0]
    tell(ok=True)


def _join_hosts(jax: Any, order: Dict[str, Any]) -> None:
    address, patience = order["coordinator"], max(5, int(order["seconds"]))
    settings = {
        "coordinator_bind_address": address,
        "initialization_timeout": patience,
        "heartbeat_timeout_seconds": SILENCE,
        "shutdown_timeout_seconds": SILENCE,
    }
    parameters = inspect.signature(jax.distributed.initialize).parameters  # older JAX has fewer
    options = {name: value for name, value in settings.items() if name in parameters}
    jax.distributed.initialize(address, order["hosts"], order["host"], **options)
    if address.startswith("127."):
        _stay_on_loopback()


def _stay_on_loopback() -> None:
    """Make the collectives of emulated hosts listen on loopback instead of the address of this machine's name. JAX has
    no setting for that; do nothing where JAX lacks the internal names."""
    try:
        from jax._src import distributed, xla_bridge
        from jax._src.lib import _jax  # pyright: ignore[reportPrivateUsage, reportPrivateImportUsage]

        client: Any = distributed.global_state.client
        ours = _jax.make_gloo_tcp_collectives(distributed_client=client, hostname="127.0.0.1")
        make: Any = xla_bridge.make_cpu_client
    except (ImportError, AttributeError, TypeError):
        return
    xla_bridge.register_backend_factory("cpu", lambda: make(ours), priority=0, fail_quietly=False)


def _check_chip_count(order: Dict[str, Any], local: List[Any], backend: str) -> None:
    """Check the number of chips, not devices: some generations show a chip as two devices."""
    if backend == "cpu" and "cpu" not in os.environ.get("JAX_PLATFORMS", ""):
        raise Wrong("jax finds no TPU on this host, only its CPU")
    chips = len({tuple(getattr(d, "coords", None) or (d.id,)) for d in local})
    if order["chips"] and chips * order["hosts"] != order["chips"]:
        expected = order["chips"] / order["hosts"]
        raise Wrong("jax finds %d chips on this host, and %g were expected" % (chips, expected))


def _check_products(jax: Any, local: List[Any], spoilt: Optional[int]) -> None:
    """Check a product of matrices on every device. The entries are integers from -2 to 2, so that the result is exact
    whatever the order of additions. `spoilt` is the local number of a device that an injected fault makes seem bad."""
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
    products = jax.jit(product, out_shardings=spread)(*jax.device_put(copies, spread))
    for shard in products.addressable_shards:
        answer = np.array(shard.data)[0]
        if spoilt == local.index(shard.device):
            answer[0, 0, 0] += 1
        different = int((answer != expected).sum())
        if different:
            text = "%s multiplies wrongly: %d of %d numbers of a product with a known answer differ"
            raise Wrong(text % (shard.device, different, answer.size), str(shard.device), lies=True)


def _check_sum(jax: Any, everywhere: List[Any]) -> None:
    import numpy as np

    count = len(everywhere)
    mesh = jax.sharding.Mesh(np.array(everywhere), ("device",))
    spread = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("device"))
    same = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec())
    whole = np.repeat(np.arange(1, count + 1, dtype=np.float32)[:, None], 1024, axis=1)

    def add(x: Any) -> Any:
        return x.sum(0)

    array = jax.make_array_from_callback(whole.shape, spread, whole.__getitem__)
    shards = jax.jit(add, out_shardings=same)(array).addressable_shards
    wrong = [s for s in shards if (np.array(s.data) != count * (count + 1) / 2).any()]
    if wrong:
        is_isolated = len(wrong) < len(shards)  # otherwise any device may be to blame
        text = "the sum over all %d devices has a known answer, and came out wrong on %s"
        device = str(wrong[0].device)
        raise Wrong(text % (count, device), device if is_isolated else "", lies=True)


def main() -> None:
    mode, path = sys.argv[1:3]
    result: Dict[str, Any] = {"ok": False, "stage": "its start"}

    def tell(**fields: Any) -> None:
        result.update(fields)
        with open(path + ".tmp", "w", encoding="utf-8") as file:
            json.dump(result, file)
        os.replace(path + ".tmp", path)

    if mode == "facts":
        tell(ok=True, **facts())
        return
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # hides the messages of libraries
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
