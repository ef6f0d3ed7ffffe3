"""One simulated host: its answers to what is sent to the agent, and what it reports. Pure; `now` is an argument."""

import json
import shlex
from dataclasses import dataclass, field
from typing import Any

from tpujob.protocol import PREEMPTED, Phase, Plan, ReportDocument, check_plan, paths, signing

Answer = tuple[int, str]  #: exit code and output
_UNKNOWN = (126, "a simulated host knows only what tpujob sends to its agent")
_SAVED = 75  #: what a program that was stopped exits with, once it has saved
_AGENT = f"{paths.HOST_FOLDER}/agent-"


@dataclass(slots=True)
class Attempt:
    """The program that a host pretends to run: one step a second, until it is stopped."""

    plan: Plan
    key: str
    since: float
    exit_code: int | None = None
    notice: str = ""
    stuck_since: float | None = None  #: it hangs
    seq: int = 0  #: of its newest report
    reported: bool = False  #: its end is reported: nothing more is written

    def report(self, now: float, physical: str) -> tuple[str, dict[str, str]]:
        """Return the path of its next report, and the signed metadata."""
        self.seq = max(self.seq + 1, int(now * 1000))
        until = now if self.stuck_since is None else self.stuck_since
        ended = self.exit_code is not None
        report: ReportDocument = {
            "v": 1,
            "job": self.plan["job"],
            "attempt": self.plan["attempt"],
            "host": self.plan["host"],
            "seq": self.seq,
            "phase": Phase.EXITED if ended else Phase.RUNNING,
            "exit_code": self.exit_code,
            "notice": self.notice,
            "physical": physical,
            "step": (step := int(until - self.since)),
        }
        if self.exit_code == _SAVED:
            report["checkpoint"] = step
            report["saved_in"] = 0.0 if self.notice else None
        elif not ended:
            report["idle"], report["looks"] = round(now - until, 1), int(now - until)
        text = json.dumps(report)
        path = paths.report_path(self.plan["workdir"], self.plan["attempt"], self.plan["host"])
        return path, {"report": text, "mac": signing.sign(self.key, "report", text)}


@dataclass(slots=True)
class Host:
    physical: str
    on: bool = True
    plans: dict[str, Plan] = field(default_factory=dict[str, Plan])  #: by the name of their file
    attempt: Attempt | None = None  #: the newest

    @property
    def reports(self) -> bool:
        """Whether it has something to report."""
        return self.on and self.attempt is not None and not self.attempt.reported

    @property
    def program(self) -> Attempt | None:
        """The attempt that runs."""
        return self.attempt if self.attempt and self.attempt.exit_code is None else None

    def answer(self, command: str, stdin: bytes, now: float) -> Answer:
        """Answer `true`, the upload of a plan, or a command of the agent, as `adapters/ssh` sends them."""
        match shlex.split(command):
            case ["true"]:
                return 0, ""
            case ["exec", "sh", "-c", _, "sh", paths.HOST_FOLDER, name, _, _, _, _]:
                self.plans = {name: check_plan(json.loads(stdin))}
                return 0, ""
            case ["exec", "sh", "-c", _, "sh", agent, _, "start", path, "--secrets-on-stdin"] if (
                _is(agent)
            ):
                return _json(self._start(self.plans[path.rpartition("/")[2]], stdin, now))
            case ["exec", "sh", "-c", _, "sh", agent, _, "stop", "--grace", _, *ask] if _is(agent):
                stopped = self._stop()
                state = {"state": "asked"} if ask else {"state": "stopped", "stopped": stopped}
                return _json({"ok": True, **state})
            case _:
                return _UNKNOWN

    def _start(self, plan: Plan, stdin: bytes, now: float) -> dict[str, Any]:
        number, newest = plan["attempt"], self.attempt.plan["attempt"] if self.attempt else 0
        if newest > number:
            return {"ok": False, "error": f"attempt {number} is stale: {newest} was started here"}
        if newest < number:
            self.attempt = Attempt(plan, json.loads(stdin)["key"], now)
        state = "already" if newest == number else "started"
        return {"ok": True, "state": state, "attempt": number, "pid": 0}

    def _stop(self) -> list[dict[str, Any]]:
        if (program := self.program) is None:
            return []
        program.exit_code = _SAVED
        job, attempt = program.plan["job"], program.plan["attempt"]
        return [{"job": job, "attempt": attempt, "exit_code": _SAVED}]

    def preempt(self) -> None:
        """Give notice; the program saves and ends at once."""
        if program := self.program:
            program.notice, program.exit_code = PREEMPTED, _SAVED


def _is(agent: str) -> bool:
    return agent.startswith(_AGENT)


def _json(answer: dict[str, Any]) -> Answer:
    return (0 if answer["ok"] else 1), json.dumps(answer) + "\n"
