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
from urllib.parse import unquote

from tpujob.emulator.client import write_ready_file
from tpujob.emulator.farm.farm import Farm
from tpujob.emulator.farm.hosts import HostSpec, SliceRequest
from tpujob.emulator.http_messages import Request, Response, json_response
from tpujob.emulator.http_server import HttpServer
from tpujob.errors import BadRequest, NotFound, TpujobError
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
    match method, unquote(path).strip("/").split("/"):
        case "GET", ["slices"]:
            return farm.hung()
        case "GET", ["slices", name, "guests"]:
            return {"guests": farm.guests(name)}
        case "PUT", ["slices", name]:
            hosts = await farm.create(_slice_request(name, body))
            return {"hosts": [{"index": h.spec.index, "address": h.address} for h in hosts]}
        case "DELETE", ["slices", name]:
            await farm.delete(name)
        case "POST", ["slices", name, kind]:
            await _disturb(farm, name, kind, body)
        case _:
            raise NotFound(f"nothing at {method} {path}")
    return {}


async def _disturb(farm: Farm, name: str, kind: str, body: dict[str, Any]) -> None:
    host = None if body.get("host") is None else int(_number(body, "host"))
    first = host or 0
    match kind:
        case "preempt":
            farm.preempt(name, _number(body, "notice_s"))
        case "maintain":
            farm.maintain(name, _number(body, "window_s"))
        case "announce":
            farm.announce(name, _texts(body.get("upcoming", {})))
        case "slow":
            farm.slow(name, first, _number(body, "factor"))
        case "off":
            await farm.switch_off(name, host)
        case "on":
            await farm.switch_on(name)
        case "hang":
            off = body.get("off") is True
            hung = [chosen.hang(off=off) for chosen in farm.hosts(name, host)]
            if not any(hung):
                raise NotFound(f"no program runs on {name}")
        case "cut":
            farm.cut(name, host, off=body.get("off") is True)
        case "oom":
            for chosen in farm.hosts(name, first):
                chosen.run_out_of_memory()
        case "env":
            for variable, value in _texts(body.get("set", {})).items():
                for chosen in farm.hosts(name, first):
                    chosen.set_env(variable, value)
        case _:
            raise NotFound(f"there is no disturbance {kind!r}")


def _number(body: dict[str, Any], key: str) -> float:
    value = body.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e6:
        raise BadRequest(f"{key} must be a number from 0 to 1,000,000")
    return float(value)


def _slice_request(name: str, body: dict[str, Any]) -> SliceRequest:
    try:
        hosts = tuple(HostSpec(**host) for host in body.pop("hosts"))
        return SliceRequest(name=name, hosts=hosts, **body)
    except (KeyError, TypeError) as error:
        raise BadRequest(f"not a description of a slice: {error!r}") from error


def _texts(value: Any) -> dict[str, str]:
    return {str(k): str(v) for k, v in value.items()}


if __name__ == "__main__":
    sys.exit(main())
