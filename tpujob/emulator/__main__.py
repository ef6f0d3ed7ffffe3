"""The emulator's process: the Cloud TPU API, Cloud Storage and the control interface, until SIGTERM.

The hosts are in a process of their own (`tpujob.emulator.farm`).
"""

import argparse
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

from tpujob.emulator.client import proxy_variables, storage_variables, write_ready_file
from tpujob.emulator.control import ControlServer
from tpujob.emulator.driver import Driver, FarmApi, FarmClient, FarmError
from tpujob.emulator.http_server import HttpThread
from tpujob.emulator.storage import StorageFaults, StorageServer
from tpujob.emulator.storage.certificate import server_context
from tpujob.emulator.storage.faults import Billed
from tpujob.emulator.storage.proxy import NAMES, StorageProxy
from tpujob.emulator.tpu.rest import handler
from tpujob.emulator.tpu.served_world import ServedWorld
from tpujob.emulator.tpu.server import TpuServer
from tpujob.errors import TpujobError
from tpujob.lib import unix_sockets

#: makes the host farm from the arguments and the URL of the storage
FarmFactory = Callable[[argparse.Namespace, str], FarmApi]


def main(
    arguments: list[str] | None = None, farm_of: FarmFactory | None = None, **world: Any
) -> int:
    """Run the emulator until SIGTERM; return the exit code. `farm_of` makes the host farm (default: the client of the
    farm in `--farm-ready`); `world` holds more arguments of `ServedWorld`."""
    args = _parse(arguments)
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda _number, _frame: stop.set())
    try:
        with running(args, farm_of or _farm, world) as ready:
            write_ready_file(args.ready, {"pid": os.getpid(), **ready})
            stop.wait()
    except (OSError, TpujobError) as error:
        print(f"the emulator cannot start: {error}", file=sys.stderr)
        return 1
    return 0


@contextlib.contextmanager
def running(
    args: argparse.Namespace, farm_of: FarmFactory, world_options: dict[str, Any]
) -> Generator[dict[str, Any]]:
    """Run every server inside the block; yield the contents of the ready file."""
    args.state.mkdir(mode=0o700, parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        faults, billed = StorageFaults(), Billed()
        bundle = args.state.absolute() / "authorities.pem"
        socket = unix_sockets.place(args.state, "tls.sock")
        tls = (socket, server_context(NAMES, bundle))
        storage = StorageServer(args.state, args.storage_port, faults, billed, tls)
        stack.callback(storage.stop)
        proxy = StorageProxy(socket)
        stack.callback(proxy.stop)
        env = {**storage_variables(storage.url), **proxy_variables(proxy.url, bundle)}
        world = ServedWorld(
            time.time, storage_faults=faults, host_env=env, billed=billed, **world_options
        )
        driver = Driver(world, farm_of(args, storage.url))
        driver.start()
        stack.callback(driver.stop)
        tpu = TpuServer(world, args.state)
        stack.callback(tpu.stop)
        rest = HttpThread(handler(world), args.tpu_rest_port, name="tpu-rest")
        stack.callback(rest.stop)
        control = ControlServer(world, args.state)
        stack.callback(control.stop)
        yield {
            "tpu": tpu.address,
            "tpu_rest": rest.url,
            "storage": storage.url,
            "control": str(control.path),
        }


def _farm(args: argparse.Namespace, _storage: str) -> FarmApi:
    """Return the client of the farm process. Delete the hosts of an earlier emulator, whose slices are unknown now."""
    farm = FarmClient(args.farm_ready)
    with contextlib.suppress(FarmError):  # it may not be up yet; then it has no hosts
        farm.take_all_down()
    return farm


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tpujob.emulator", description=__doc__)
    parser.add_argument("--ready", type=Path, required=True, help="written when everything is up")
    parser.add_argument("--state", type=Path, required=True, help="folder for what is kept")
    parser.add_argument("--farm-ready", type=Path, required=True, help="the host farm's")
    for server in ("tpu-rest", "storage"):
        parser.add_argument(f"--{server}-port", type=int, default=0)
    return parser.parse_args(arguments)


if __name__ == "__main__":
    sys.exit(main())
