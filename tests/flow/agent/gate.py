"""A program that waits until its test opens a gate."""

from typing import Any

from tests.support.agent_host import Host, until


def start_at_gate(host: Host, command: str, **plan: Any) -> int:
    """Start a program that waits before `command`. Return the agent's pid once the program waits."""
    pid = host.start(f"touch ~/up; until [ -e ~/go ]; do sleep 0.05; done; {command}", **plan)[
        "pid"
    ]
    until((host.home / "up").exists, "the start of the program")
    return pid


def open_gate(host: Host) -> None:
    (host.home / "go").touch()
