"""`python -m tpujob.emulator.farm --ready FILE --state DIR`: run the farm until SIGTERM.

Writes FILE, in one step, once the farm listens: `{"pid", "control", "ssh_port"}`; `control` is a Unix socket's path.
"""

import argparse
import asyncio
import fcntl
import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

from starlette.responses import Response

from tpujob.emulator.client import write_ready_file
from tpujob.emulator.farm import HostSpec, HostUp, SliceRequest
from tpujob.emulator.farm.farm import Farm
from tpujob.emulator.http_server import HttpServer, Request, json_response
from tpujob.errors import NotFound, TpujobError
from tpujob.lib import unix_sockets


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tpujob.emulator.farm")
    parser.add_argument("--ready", type=Path, required=True, help="written once it listens")
    parser.add_argument("--state", type=Path, required=True, help="folder of the hosts")
    parser.add_argument("--ssh-port", type=int, default=0, help="of every host; 0: a free one")
    args = parser.parse_args()
    args.state.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (args.state / "farm.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"another farm runs on {args.state}", file=sys.stderr)
            return 1
        try:
            asyncio.run(_run(args.ready, args.state, args.ssh_port))
        except TpujobError as error:
            print(f"{error.message}\n{error.hint}".rstrip(), file=sys.stderr)
            return error.exit_code
    return 0


async def _run(ready: Path, state: Path, ssh_port: int) -> None:
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    farm = Farm(state, ssh_port)
    await farm.clear()
    server = HttpServer(partial(answer, farm))
    control = unix_sockets.place(state, "control.sock")
    try:
        await server.serve(unix_sockets.listen(control))
        content = {"pid": os.getpid(), "control": str(control), "ssh_port": farm.ssh_port}
        write_ready_file(ready, content)
        await stop.wait()
    finally:
        await server.close()
        unix_sockets.remove(control)
        await farm.close()


# The control API: JSON over HTTP, for the emulated cloud and for injected faults --------------------------------------


async def answer(farm: Farm, request: Request) -> Response:
    """Answer a request of the control API."""
    try:
        body = await request.json_object()
        return json_response(await _route(farm, request.method, request.path, body))
    except TpujobError as error:
        return json_response({"error": error.message, "hint": error.hint}, error.http_status)
    except ValueError as error:
        return json_response({"error": str(error)}, 400)


async def _route(farm: Farm, method: str, path: str, body: dict[str, Any]) -> Any:
    match method, path.strip("/").split("/"):
        case "GET", ["slices"]:
            return farm.hung()
        case "PUT", ["slices", _]:
            specs = tuple(HostSpec(**host) for host in body.pop("hosts"))
            hosts = await farm.create(SliceRequest(hosts=specs, **body))
            return {"hosts": [HostUp(host.address, host.guest_attributes()) for host in hosts]}
        case "DELETE", ["slices", name]:
            await farm.delete(name)
        case "POST", ["slices", name, kind]:
            await _disturb(farm, name, kind, body)
        case _:
            raise NotFound(f"nothing at {method} {path}")
    return {}


async def _disturb(farm: Farm, name: str, kind: str, body: dict[str, Any]) -> None:
    host, off = body.get("host"), body.get("off", False)
    match kind:
        case "preempt":
            farm.preempt(name, body["notice_s"])
        case "maintain":
            farm.maintain(name, body["window_s"])
        case "announce":
            farm.announce(name, body["upcoming"])
        case "slow":
            farm.slow(name, body["host"], body["factor"])
        case "off":
            await farm.switch_off(name, host)
        case "on":
            await farm.switch_on(name)
        case "hang":
            hung = [chosen.hang(off=off) for chosen in farm.hosts(name, host)]
            if not any(hung):
                raise NotFound(f"no program runs on {name}")
        case "cut":
            farm.cut(name, host, off=off)
        case "oom":
            for chosen in farm.hosts(name, host):
                chosen.run_out_of_memory()
        case "env":
            for chosen in farm.hosts(name, host):
                for variable, value in body["set"].items():
                    chosen.set_env(variable, value)
        case _:
            raise NotFound(f"there is no disturbance {kind!r}")


if __name__ == "__main__":
    sys.exit(main())
