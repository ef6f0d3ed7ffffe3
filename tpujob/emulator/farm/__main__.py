"""`python -m tpujob.emulator.farm --ready FILE --state DIR`: run the farm until SIGTERM.

Writes FILE, whole, once it listens: `{"pid", "control", "ssh_port"}`; `control` is the path of a Unix socket.
"""

import argparse
import asyncio
import fcntl
import os
import signal
import sys
from pathlib import Path

from tpujob.emulator import ready as ready_file
from tpujob.emulator.farm.control import FarmControl
from tpujob.emulator.farm.farm import Farm
from tpujob.emulator.http_server import HttpServer
from tpujob.errors import TpujobError
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
    server, control = (
        HttpServer(FarmControl(farm).answer),
        unix_sockets.place(state, "control.sock"),
    )
    try:
        await server.serve(unix_sockets.listen(control))
        here = {"pid": os.getpid(), "control": str(control), "ssh_port": farm.ssh_port}
        ready_file.write(ready, here)
        await stop.wait()
    finally:
        await server.close()
        unix_sockets.remove(control)
        await farm.close()


if __name__ == "__main__":
    sys.exit(main())
