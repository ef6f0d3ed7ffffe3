"""Tabs of one real browser window, of which one is shown and the others are hidden.

Playwright tells every page that it is shown; so this speaks the browser's own protocol, over a pipe.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = ("--headless", "--no-sandbox", "--remote-debugging-pipe", "--no-first-run")


class Tab:
    def __init__(self, window: Window, url: str) -> None:
        self._window = window
        self._id = window.call("Target.createTarget", url=url)["targetId"]
        attached = window.call("Target.attachToTarget", targetId=self._id, flatten=True)
        self._session = attached["sessionId"]

    def show(self) -> None:
        self._window.call("Target.activateTarget", targetId=self._id)

    def value(self, expression: str) -> Any:
        result = self._window.call(
            "Runtime.evaluate", self._session, expression=expression, returnByValue=True
        )
        return result["result"].get("value")

    def until(self, expression: str, seconds: float = 10) -> float:
        """Waits until it is true; returns for how many seconds."""
        began = time.monotonic()
        while not self.value(expression):
            assert time.monotonic() < began + seconds, f"not within {seconds} s: {expression}"
            time.sleep(0.02)
        return time.monotonic() - began


class Window:
    def __init__(self, chromium: str, profile: Path) -> None:
        (read, tell), (hear, write) = os.pipe(), os.pipe()

        def connect() -> None:  # the browser reads from 3 and writes to 4
            os.dup2(read, 13), os.dup2(write, 14)
            os.dup2(13, 3), os.dup2(14, 4)

        command = [chromium, *FLAGS, f"--user-data-dir={profile}", "about:blank"]
        self._process = subprocess.Popen(
            command, preexec_fn=connect, close_fds=False, stderr=subprocess.DEVNULL
        )
        os.close(read), os.close(write)
        self._tell, self._hear = tell, hear
        self._numbers, self._heard = itertools.count(1), b""

    def call(self, method: str, session: str = "", **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        os.write(
            self._tell,
            json.dumps(message | ({"sessionId": session} if session else {})).encode() + b"\0",
        )
        while True:
            while b"\0" not in self._heard:
                self._heard += os.read(self._hear, 1 << 16)
            frame, _, self._heard = self._heard.partition(b"\0")
            answer = json.loads(frame)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return answer["result"]

    def close(self) -> None:
        self.call("Browser.close")
        self._process.wait(20)
        os.close(self._tell), os.close(self._hear)


@contextmanager
def window(chromium: str, profile: Path) -> Iterator[Window]:
    opened = Window(chromium, profile)
    try:
        yield opened
    finally:
        opened.close()
