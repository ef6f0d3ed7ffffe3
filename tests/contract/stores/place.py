"""The place of a store in a contract suite, whatever its adapter."""

import subprocess
import sys
from dataclasses import dataclass, field

from tests.support.paths import ROOT
from tests.support.stores import ADAPTERS, AGE, DAMAGE, EMPTY
from tpujob.ports import Store


@dataclass
class Place:
    """The place of one store: this process opens it as often as wanted, and others do."""

    adapter: str
    where: str
    running: list[subprocess.Popen[str]] = field(default_factory=list)
    opened: list[Store] = field(default_factory=list)

    def open(self) -> Store:
        self.opened.append(ADAPTERS[self.adapter](self.where))
        return self.opened[-1]

    def damage(self, job_id: str) -> None:
        """Make the job's record unreadable."""
        DAMAGE[self.adapter](self.where, job_id)

    def age_lease(self, job_id: str, seconds: float) -> None:
        """Let the newest lease of the job be that much older."""
        AGE[self.adapter](self.where, job_id, seconds)

    def empty(self) -> None:
        """Remove the one job, and the mark that tells this store from others."""
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
