"""The commands that reach the hosts of a job from this machine: `tpujob ssh`, `exec` and `forward`."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from queue import Queue
from typing import Annotated, NamedTuple, Protocol

from tpujob.cli.backend import connect, current_settings
from tpujob.cli.errors import on_interrupt
from tpujob.cli.options import JobRef, argument, flag, option
from tpujob.cli.output import get_screen, note, say
from tpujob.cli.render.lines import after_host
from tpujob.domain.text import clean, list_hosts
from tpujob.errors import BadRequest, TpujobError, Transient

#: hosts on which a command runs at once: each is a process of ssh here, and maybe one of gcloud
AT_ONCE = 16
_WAITING = 1000  #: lines that wait to be printed
_FORWARD = re.compile(r"(?:[^:\s]+:)?\d{1,5}:[^:\s]+:\d{1,5}")
_PORTS = re.compile(r"(?:(\d{1,5}):)?(\d{1,5})")

OneHost = Annotated[int, option("K", "Host number.", "--host", min=0)]


def ssh(
    job: JobRef,
    command: Annotated[list[str] | None, argument("[-- COMMAND...]", "Run a command.")] = None,
    host: OneHost = 0,
    forwards: Annotated[
        list[str] | None,
        option(
            "PORT:HOST:PORT",
            "Forward a port, as ssh does; repeatable.",
            "-L",
        ),
    ] = None,
) -> int:
    """Open a shell on a host of a job, or run a command there."""
    for forward in forwards or ():
        if not _FORWARD.fullmatch(forward):
            raise BadRequest(
                f"-L {forward}: it is not PORT:HOST:PORT", hint="Such as -L 6006:localhost:6006."
            )
    backend = connect()
    from tpujob.wiring import client

    return client.open_session(
        current_settings(),
        backend,
        job,
        host=host,
        command=command or None,
        forwards=forwards or (),
    )


# One command on all hosts --------------------------------------------------------------------------------------------


class _HostCommand(Protocol):
    """A command that runs on a host, as in `adapters/ssh/session.py`."""

    def run(self, line: Callable[[bytes, bool], None]) -> int: ...
    def close(self) -> None: ...


class _Line(NamedTuple):
    host: int
    text: str
    is_error: bool  #: it was written to standard error


class _End(NamedTuple):
    host: int
    code: int
    error: TpujobError | None = None  #: the host was not reached, or it disconnected


def exec_(
    job: JobRef,
    command: Annotated[list[str], argument("-- COMMAND...", "Runs on each host, without input.")],
    host: Annotated[int | None, option("K", "Host number; default: all.", "--host", min=0)] = None,
) -> int:
    """Run a command on all hosts of a job.

    The number of the host is before each line; the worst exit code counts."""
    from tpujob.wiring import client

    api = connect()
    view = api.get(job)
    serving = [s for s in view["slices"] if s["role"] == "serving" and not s["gone_at"]]
    count = len(serving[-1]["hosts"]) if serving else 0
    hosts = [host] if host is not None else [*range(max(count, 1))]
    start = client.host_commands(current_settings(), api, view["id"], command)
    color = get_screen().color
    ends: dict[int, list[int]] = {}  #: hosts by exit code
    for event in _events(start, hosts):
        if isinstance(event, _Line):
            text = clean(event.text, tabs=True)
            line = text if host is not None else after_host(event.host, text, color)
            note(line) if event.is_error else say(line, flush=True)
        else:
            ends.setdefault(event.code, []).append(event.host)
            if event.error:
                note(f"tpujob: {clean(event.error.message)}")
    failed = {code: sorted(which) for code, which in sorted(ends.items()) if code}
    if failed and len(hosts) > 1:
        parts = (f"{code} on {list_hosts(which)}" for code, which in failed.items())
        note(f"tpujob: exit code {'; '.join(parts)}")
    return max(ends)


def _events(start: Callable[[int], _HostCommand], hosts: Sequence[int]) -> Iterator[_Line | _End]:
    """Run the command on the hosts; yield their lines and ends. Raises errors that are not about one host alone. All
    that still runs is killed when the caller stops."""
    events: Queue[_Line | _End] = Queue(_WAITING)
    waiting, running, lock = [*reversed(hosts)], list[_HostCommand](), threading.Lock()

    def work() -> None:
        while True:
            with lock:
                if not waiting:
                    return
                host = waiting.pop()
            events.put(_run(start, host, events, running))

    for _ in range(min(AT_ONCE, len(hosts))):
        threading.Thread(target=work, daemon=True).start()
    left = len(hosts)
    try:
        while left:
            event = events.get()
            if isinstance(event, _End):
                left -= 1
                if event.error and not isinstance(event.error, Transient):
                    raise event.error
            yield event
    finally:
        with lock:
            waiting.clear()
        for command in [*running]:
            command.close()


def _run(
    start: Callable[[int], _HostCommand],
    host: int,
    events: Queue[_Line | _End],
    running: list[_HostCommand],
) -> _End:
    """Run the command on a host, and return its end."""
    try:
        command = start(host)
        running.append(command)
        try:
            code = command.run(
                lambda text, is_error: events.put(
                    _Line(host, text.decode("utf-8", "replace"), is_error)
                )
            )
        finally:
            running.remove(command)
            command.close()
        return _End(host, code)
    except TpujobError as error:
        return _End(host, error.exit_code, error)


# Ports ---------------------------------------------------------------------------------------------------------------


def forward(
    job: JobRef,
    ports: Annotated[
        list[str],
        argument(
            "[LOCAL:]PORT...", "A port of the host, such as 6006; before it one of this machine."
        ),
    ],
    host: OneHost = 0,
    browser: Annotated[bool, flag("Open the first port in the browser.", "--open")] = False,
) -> None:
    """Forward ports of this machine to a host of a job, until Ctrl-C.

    For TensorBoard, a notebook, a profiler."""
    pairs = [_parse_ports(text) for text in ports]
    api = connect()
    job_id = api.get(job)["id"]
    from tpujob.wiring import client

    def connected() -> None:
        for local, remote in pairs:
            say(
                f"http://localhost:{local} leads to port {remote} of host {host} of job {job_id}.",
                flush=True,
            )
        note("tpujob: forwarding until Ctrl-C")
        if browser:
            _open(f"http://localhost:{pairs[0][0]}")

    noted: set[str] = set()

    def refused(message: str) -> None:
        reason = message.partition("open failed: ")[2] or message
        if reason not in noted:
            noted.add(reason)
            note(f"tpujob: host {host} accepts no connection to that port now: {clean(reason)}")

    forwards = [f"127.0.0.1:{local}:localhost:{remote}" for local, remote in pairs]
    with on_interrupt(f"The forwarding has ended. Job {job_id} continues."):
        client.forward_ports(
            current_settings(), api, job_id, host, forwards, connected=connected, refused=refused
        )


def _parse_ports(text: str) -> tuple[int, int]:
    """Return the port of this machine and that of the host. Raises BadRequest."""
    match = _PORTS.fullmatch(text)
    remote = int(match[2]) if match else 0
    local = int(match[1] or remote) if match else 0
    if not (0 < local < 65536 and 0 < remote < 65536):
        raise BadRequest(
            f"{text!r} is not a port, or two of them",
            hint="Such as 6006, or 16006:6006 for LOCAL:PORT.",
        )
    return local, remote


def _open(address: str) -> None:
    from tpujob.config.settings import has_screen

    if has_screen():
        import webbrowser

        webbrowser.open(address)
    else:
        note("tpujob: there is no screen here on which a browser could open it")
