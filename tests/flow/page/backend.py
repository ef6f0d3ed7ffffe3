"""A backend process with a page, which can be killed: `python -m tests.flow.page.backend FOLDER PORT JOBS USERS`.

It serves as every backend does, over the SQLite store in that folder, which it fills when it is new: each job is of one
of so many users. Lines on its standard input are deeds; each is answered by one line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from tests.flow.page import lab
from tests.support.callers import NamedDoor, caller
from tests.support.stage import Stage
from tests.support.world import service
from tpujob.domain.model import State
from tpujob.web.serving import SocketListener, serve

#: methods of a store that read it
READS = ("get", "peek", "list", "walk", "events", "changes", "newest", "due", "damaged")


class Counted:
    """A store, and how often it was read."""

    def __init__(self, store: Any) -> None:
        self._store, self.reads = store, 0

    def __getattr__(self, name: str) -> Any:
        if name in READS:
            self.reads += 1
        return getattr(self._store, name)


class Backend:
    def __init__(self, folder: Path, jobs: int, users: int) -> None:
        folder.mkdir(exist_ok=True)
        self.stage = Stage(folder)
        self.stage.clock.now = time.time
        self.people = [caller(f"u{n}") for n in range(users)]
        if not self.stage.store.list():
            self._fill(jobs)
        self.store = Counted(self.stage.store)
        self.api = service(self.stage.reconciler, store=self.store)
        self.changes = self.api.changes
        self.ids = [job.id for job in self.stage.store.list()]
        self.dice = Random(7)

    def _fill(self, jobs: int) -> None:
        def owned(n: int) -> Any:
            who = self.people[n % len(self.people)]
            going = (n + n // len(self.people)) % 20 == 0  # of everybody some
            state = State.RUNNING if going else State.SUCCEEDED
            return replace(lab.job_in(state, n, now=time.time()), user=who.name, owner=who.id)

        lab.store_jobs(self.stage.store, (owned(n) for n in range(jobs)))

    def change(self, times: int, per_second: float, newest: int) -> dict[str, Any]:
        """Random jobs among the newest say when they were changed; some come and go."""
        said: list[tuple[str, int]] = []
        for _ in range(times):
            began = time.monotonic()
            at, job_id = time.time_ns(), self.dice.choice(self.ids[:newest])
            self._say(job_id, f"said {at}")
            said.append((job_id, at))
            time.sleep(max(0.0, began + 1 / per_second - time.monotonic()))
        return {"said": said}

    def _say(self, job_id: str, message: str) -> None:
        store = self.stage.store
        found = store.get(job_id)
        changed = replace(found, message=message)
        store.commit(changed, None, expected_version=found.version, op_id=message, lease=None)
        self.changes.poke()

    def shuffle(self, times: int) -> dict[str, Any]:
        """A job is removed, another one comes."""
        store = self.stage.store
        for n in range(times):
            gone = self.ids.pop(self.dice.randrange(50))
            store.remove(gone, lease=None)
            who = self.dice.choice(self.people)
            job = replace(
                lab.job_in(State.RUNNING, n, now=time.time()), user=who.name, owner=who.id
            )
            (made,) = lab.store_jobs(store, [job])
            self.ids.insert(0, made.id)
            self.changes.poke()
            time.sleep(0.02)
        return {}

    def figures(self) -> dict[str, Any]:
        own = resource.getrusage(resource.RUSAGE_SELF)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return {
            "cpu": own.ru_utime + own.ru_stime,
            "mib": pages * resource.getpagesize() / 2**20,
            "reads": self.store.reads,
            "viewers": self.api.itself.streams(),
        }

    def obey(self) -> None:
        for line in sys.stdin:
            name, *words = json.loads(line)
            print(json.dumps(getattr(self, name)(*words)), flush=True)
        os.kill(os.getpid(), signal.SIGTERM)  # whoever started it is gone


class Process:
    """Such a process, as whoever started it has it."""

    def __init__(self, folder: Path, jobs: int, users: int, port: int = 0) -> None:
        command = [sys.executable, "-m", "tests.flow.page.backend", folder, port, jobs, users]
        self.process = subprocess.Popen(
            [str(word) for word in command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.port: int = self._answer()["port"]

    def ask(self, *words: Any) -> dict[str, Any]:
        self.tell(*words)
        return self._answer()

    def tell(self, *words: Any) -> None:
        assert self.process.stdin
        self.process.stdin.write(json.dumps(words) + "\n")
        self.process.stdin.flush()

    async def do(self, *words: Any) -> dict[str, Any]:
        self.tell(*words)
        return await asyncio.get_running_loop().run_in_executor(None, self._answer)

    def _answer(self) -> dict[str, Any]:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def page(self, name: str, view: str) -> str:
        asked = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{view}",
            headers={"x-test-name": name, "accept": "text/html"},
        )
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return answer.read().decode()

    def end(self, number: int = signal.SIGTERM) -> float:
        """Seconds until it has ended."""
        began = time.monotonic()
        self.process.send_signal(number)
        self.process.wait(30)
        for pipe in (self.process.stdin, self.process.stdout):
            assert pipe
            pipe.close()
        return time.monotonic() - began


def main() -> None:
    folder, port, jobs, users = Path(sys.argv[1]), *map(int, sys.argv[2:5])
    backend = Backend(folder, jobs, users)
    place = socket.create_server(("127.0.0.1", port), backlog=512)
    threading.Thread(target=backend.obey, daemon=True).start()
    # nobody looks after these jobs
    parts: Any = SimpleNamespace(api=backend.api, changes=backend.changes, stop=lambda: None)
    serve(
        [SocketListener(place, NamedDoor(*backend.people))],
        parts,
        started=lambda: print(json.dumps({"port": place.getsockname()[1]}), flush=True),
        with_loop=False,
    )


if __name__ == "__main__":
    main()
