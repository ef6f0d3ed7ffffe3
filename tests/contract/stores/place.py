"""Where a store of a contract suite lives, whatever its adapter."""

import subprocess
import sys
from dataclasses import dataclass, field

from tests.support.paths import ROOT
from tests.support.stores import ADAPTERS, DAMAGE, EMPTY
from tpujob.ports import Store


@dataclass
class Place:
    """Where one store lives: opened by this process as often as wanted, and by others."""

    adapter: str
    where: str
    running: list[subprocess.Popen[str]] = field(default_factory=list)
    opened: list[Store] = field(default_factory=list)

    def open(self) -> Store:
        self.opened.append(ADAPTERS[self.adapter](self.where))
        return self.opened[-1]

    def damage(self, job_id: str) -> None:
        """Its record is no record any more."""
        DAMAGE[self.adapter](self.where, job_id)

    def empty(self) -> None:
        """Its one job is gone, and so is what told it from other stores."""
        EMPTY[self.adapter](self.where)

    def process(self, deed: str, *arguments: str) -> subprocess.Popen[str]:
        """Another process, with the store open, that waits for `go`."""
        process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "tests.support.stores",
                self.adapter,
                self.where,
                deed,
                *arguments,
            ],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.running.append(process)
        return process


def go(*processes: subprocess.Popen[str]) -> None:
    for process in processes:
        assert process.stdout
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin
        process.stdin.write("\n")
        process.stdin.flush()
