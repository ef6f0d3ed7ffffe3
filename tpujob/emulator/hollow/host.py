"""One hollow host: its answers to what is sent to the agent, and what it reports. Pure; `now` is an argument."""

import json
import shlex
from dataclasses import dataclass, field
from typing import Any

from tpujob.protocol import (
    PREEMPTED,
    Phase,
    Plan,
    ReportDocument,
    check_plan,
    paths,
)

Answer = tuple[int, str]  #: exit code and output
_KNOWS = "a hollow host knows only what tpujob sends to its agent"
_SAVED = 75  #: what a program that was told to stop exits with, once it has saved


@dataclass(slots=True)
class Attempt:
    """The program that a host pretends to run: one step a second, until it is told to stop."""

    plan: Plan
    key: str
    since: float
    exit_code: int | None = None
    notice: str = ""
    stuck_since: float | None = None  #: it hangs
    seq: int = 0  #: of its newest report
    said: bool = False  #: its end is reported: nothing more is written

    @property
    def number(self) -> int:
        return self.plan["attempt"]

    def report(self, now: float, physical: str) -> ReportDocument:
        """Its next report."""
        self.seq = max(self.seq + 1, int(now * 1000))
        until = now if self.stuck_since is None else self.stuck_since
        ended = self.exit_code is not None
        step = int(until - self.since)
        said: ReportDocument = {
            "v": 1,
            "job": self.plan["job"],
            "attempt": self.plan["attempt"],
            "host": self.plan["host"],
            "seq": self.seq,
            "at": now,
            "phase": Phase.EXITED if ended else Phase.RUNNING,
            "exit_code": self.exit_code,
            "notice": self.notice,
            "physical": physical,
            "step": step,
        }
        if self.exit_code == _SAVED:
            said["checkpoint"] = step
            said["saved_in"] = 0.0 if self.notice else None
        elif not ended:
            said["idle"], said["looks"] = round(now - until, 1), int(now - until)
        return said

    def end(self) -> None:
        """It is told to stop, and has saved."""
        if self.exit_code is None:
            self.exit_code = _SAVED


@dataclass(slots=True)
class Host:
    physical: str
    on: bool = True
    plans: dict[str, Plan] = field(default_factory=dict[str, Plan])  #: by the name of their file
    attempt: Attempt | None = None  #: the newest

    @property
    def speaks(self) -> bool:
        """Whether it has something to report."""
        return self.on and self.attempt is not None and not self.attempt.said

    def answer(self, command: str, given: bytes, now: float) -> Answer:
        """What `adapters/ssh` sends to a host, as that says it: `true`, the upload of a plan, a word to the agent."""
        match shlex.split(command):
            case ["true"]:
                return 0, ""
            case ["exec", "sh", "-c", _, "sh", paths.HOST_FOLDER, name, size, _, _, _]:
                return self._take(name, int(size), given)
            case ["exec", "sh", "-c", _, "sh", agent, _, *words] if agent.startswith(_AGENT):
                return self._agent(words, given, now)
            case _:
                return 126, _KNOWS

    def _take(self, name: str, size: int, given: bytes) -> Answer:
        if len(given) != size:
            return 1, "the plan did not arrive whole"
        self.plans = {name: check_plan(json.loads(given))}
        return 0, ""

    def _agent(self, words: list[str], given: bytes, now: float) -> Answer:
        match words:
            case ["start", path, "--told"]:
                return _said(self._start(self.plans[path.rpartition("/")[2]], given, now))
            case ["stop", "--grace", _]:
                return _said({"ok": True, "state": "stopped", "stopped": self._stop()})
            case ["stop", "--grace", _, "--ask"]:
                self._stop()
                return _said({"ok": True, "state": "asked"})
            case _:
                return 126, _KNOWS

    def _start(self, plan: Plan, given: bytes, now: float) -> dict[str, Any]:
        known, asked = self.attempt, plan["attempt"]
        newest = known.plan["attempt"] if known else 0
        if newest > asked:
            return {"ok": False, "error": f"attempt {asked} is stale: {newest} was started here"}
        if newest < asked:
            self.attempt = Attempt(plan, json.loads(given)["key"], now)
        state = "already" if newest == asked else "started"
        return {"ok": True, "state": state, "attempt": asked, "pid": 0}

    def _stop(self) -> list[dict[str, Any]]:
        known = self.attempt
        if known is None or known.exit_code is not None:
            return []
        known.end()
        plan = known.plan
        return [{"job": plan["job"], "attempt": plan["attempt"], "exit_code": known.exit_code}]

    def preempt(self) -> None:
        """The notice comes, and the program saves and ends at once."""
        if self.attempt is not None and self.attempt.exit_code is None:
            self.attempt.notice = PREEMPTED
            self.attempt.end()

    def hang(self, now: float, *, off: bool) -> bool:
        """Whether a program runs here."""
        if self.attempt is None or self.attempt.exit_code is not None:
            return False
        self.attempt.stuck_since = None if off else now
        return True


_AGENT = f"{paths.HOST_FOLDER}/agent-"


def _said(answer: dict[str, Any]) -> Answer:
    return (0 if answer["ok"] else 1), json.dumps(answer) + "\n"
