"""jobman's queue: `tasks.yaml` with its state, and the job YAMLs beside it, become job files.

The slice and the hosts of a worker, and the table of keys, are in `jobman_worker.py`.
"""

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any, cast

from tpujob.domain.hardware import accelerators
from tpujob.domain.spec import fields
from tpujob.domain.spec.yaml import Document
from tpujob.errors import BadSpec
from tpujob.submit.import_keys import ImportReading, Section, documents
from tpujob.submit.import_plan import ImportPlan, JobDraft, in_order, job_name
from tpujob.submit.jobman_worker import INHERITED, TABLE, Machine, on_hosts, read_machine

_FOLDER = r"[\w-]+([./][\w-]+)*"


@dataclass(frozen=True, slots=True)
class Task:
    section: Section
    id: str
    type: str
    given: Mapping[str, Any]  #: its keys, with the inherited ones
    state: Section

    @property
    def failed(self) -> bool:
        """Whether jobman has given it up."""
        last: Any = [dict[str, Any](), *self.state.items("history")][-1]
        return isinstance(last, dict) and cast("Any", last).get("status") == "failed"

    @property
    def done(self) -> bool:
        return bool(self.state.get("done", bool)) and not self.failed

    @property
    def running(self) -> bool:
        return bool(self.state.items("running"))


def read_jobman(
    files: Mapping[str, str], *, code: str = "", while_running: bool = False
) -> ImportPlan:
    """The jobs of these texts, by file name: of each task that has not run, and of each job YAML with a command. `code`
    is a folder to ship in place of a clone. Raises BadSpec with file and line."""
    reading = ImportReading(TABLE)
    found = [document for name, text in files.items() for document in documents(text, name)]
    machines = [read_machine(one, reading) for one in found if "tpu" in one.data]
    states = {one.source: one for one in found if isinstance(one.data.get("tasks"), dict)}
    queues = [one for one in found if "tpu" not in one.data and one.source not in states]
    drafts, taken, done = list[JobDraft](), list[str](), list[str]()
    for document in queues:
        path = PurePath(document.source)
        state = states.pop(str(path.with_name(f"{path.stem}_state.yaml")), None)
        workers = [one for one in machines if PurePath(one.queue).name == path.name]
        queue = _Queue(document, state, reading, code)
        drafts += queue.drafts(workers, taken, while_running)
        done += [task.id for task in queue.tasks.values() if task.done]
    for state in states.values():
        Section(state, reading).note("tasks", "dropped", "its file of tasks is not here")
    for machine in machines:
        if "command" in machine.spec["run"]:
            taken.append(job_name(machine.spec["name"], taken))
            drafts.append(JobDraft(machine.spec | {"name": taken[-1]}, machine.section.place))
    if not drafts and not done:
        text = f"there is no task and no job of jobman in {', '.join(files) or 'the folder'}"
        raise BadSpec(text, hint="Name tasks.yaml, the YAML of a job, or their folder.")
    return ImportPlan(in_order(drafts), reading.finish(), tuple(done))


class _Queue:
    """One file of tasks, with its state."""

    def __init__(
        self, document: Document, state: Document | None, reading: ImportReading, code: str
    ) -> None:
        top, self._code = Section(document, reading), code
        self._repos = top.child("repos", "repos")
        self._repos.unknown = "no task names it"
        groups, defaults = top.child("accelerators"), top.child("defaults")
        found = [(type, groups.child(type, "accelerators[]")) for type in groups.values]
        for key, value in defaults.values.items():
            if isinstance(value, dict):
                text = "jobman finds no task here: it is under `defaults`, not `accelerators`"
                defaults.note(key, "question", f"{text}; read as meant")
                found.append((key, defaults.child(key, "accelerators[]")))
        nothing = Section(Document(document.source, {}, document.lines), reading)
        all = Section(state, reading).child("tasks") if state else nothing
        states = {id: all.child(id, "state[]") for id in all.values}
        self.tasks: dict[str, Task] = {}
        self.names: dict[str, str] = {}  #: of the tasks that have not run, by id
        for type, group in found:
            given = {key: {**defaults.values, **group.values}.get(key) for key in INHERITED}
            given["zone"] = defaults.values.get("zone")
            for section in group.children("tasks", "tasks[]"):
                id = str(section.get("id", str, int) or "")
                if not id or not type or not section.get("run", str):
                    raise section.error("", "a task needs id and run, below an accelerator")
                if id in self.tasks:
                    line = self.tasks[id].section.line("id")
                    text = f"{id} is also in line {line}; in jobman both share one state"
                    raise section.error("id", text, "Give one of them another id.")
                kind = section.checked("accelerator", accelerators.find, type).type
                state_of = states.pop(id, nothing)
                self.tasks[id] = Task(section, id, kind, {**given, **section.values}, state_of)
        for section in states.values():
            section.note("", "warning", "there is no such task; left out")

    def drafts(
        self, workers: Sequence[Machine], taken: list[str], while_running: bool
    ) -> list[JobDraft]:
        """A draft for each task that has not run. Adds their names to those that are taken."""
        wanted = [task for task in self.tasks.values() if not task.done]
        running = [task for task in wanted if task.running]
        if running and not while_running:
            text = "\n".join(f"{one.state.place}: {one.id} is running in jobman" for one in running)
            hint = "Stop jobman's workers, or import these tasks held: --while-jobman-runs"
            raise BadSpec(text, hint=hint)
        for task in wanted:
            self.names[task.id] = job_name(task.id, taken)
            taken.append(self.names[task.id])
        for worker in workers:
            if not any(worker.fits(task.type, task.given["zone"]) for task in wanted):
                text = "it has no task: jobman keeps its slice, which is billed, for ever"
                worker.section.note("tpu", "warning", f"{text}; nothing is imported of it")
        return [self._draft(task, workers) for task in wanted]

    def _draft(self, task: Task, workers: Sequence[Machine]) -> JobDraft:
        section, zone, name = task.section, task.given["zone"], self.names[task.id]
        of_type = [one for one in workers if one.spec["tpu"]["type"] == task.type]
        fitting = [one for one in of_type if one.fits(task.type, zone)]
        base: dict[str, Any] = {"tpu": {"pricing": "spot"}, "run": {}}
        base |= (fitting or of_type)[0].spec if of_type else {}
        zones = [one.spec["tpu"].get("zones", "") for one in of_type]
        if zone:
            zones = [section.checked("zone", fields.zone, zone)]
        else:
            text = "without a zone no worker of jobman takes it; the zones of the workers are used"
            section.note("id", "warning", text)
        if zone and workers and not fitting:
            text = f"no worker of jobman has {task.type} in {zone}: jobman would wait for ever"
            section.note("id", "warning", text)
        spec = {**base, "name": name}
        spec["tpu"] = {**base["tpu"], "type": task.type, "zones": [one for one in zones if one]}
        spec |= self._program(task, base)
        copies = section.checked("max_jobs", fields.count(10_000, 1), task.given["max_jobs"] or 1)
        if copies > 1:
            spec["array"] = copies
            text = f"array of {copies}: up to {copies} workers ran it at once until one succeeded"
            section.note("max_jobs", "question", f"{text}; are {copies} replicas meant?")
        if task.given["max_retries"] is not None:
            attempts = section.checked("max_retries", fields.count(1000), task.given["max_retries"])
            spec["recovery"] = {"failures": (attempts or 3) - 1}  # 0 is read as the default
        spec["after"] = self._after(task)
        if task.state.get("priority", bool):
            text = f"it was to run first: tpujob queue top {name}"
            task.state.note("priority", "question", text)
        if task.failed or task.running:
            spec["start"] = "held"
            times = task.state.get("fail_count") or "too many"
            text = f"failed {times} times" if task.failed else "is running"
            task.state.note("", "warning", f"it {text} in jobman; imported held")
        return JobDraft(spec, section.place)

    def _program(self, task: Task, base: Mapping[str, Any]) -> dict[str, Any]:
        """The command, and its code: the folder given, or a clone, which setup makes."""
        section, repo = task.section, str(task.given["repo"] or "")
        command = on_hosts(section, "run", section.values["run"], task.type).strip()
        entry: Any = self._repos.get(repo, str, dict) or {}
        entry = {"url": entry} if isinstance(entry, str) else entry
        url, folder = str(entry.get("url") or ""), str(task.given["workdir"] or repo)
        branch = shlex.quote(str(task.given["branch"] or entry.get("branch") or "main"))
        program: dict[str, Any] = {"run": {**base["run"], "command": command}}
        if self._code:
            text = "the folder of --code is shipped instead"
            for key in {"repo", "branch", "workdir"} & {*section.values}:
                section.note(key, "dropped", text)
            self._repos.note(repo, "dropped", text)
            if f"~/{folder}" in command:
                text = f"names ~/{folder}, which is the folder of --code here"
                section.note("run", "warning", text)
            return program | {"code": self._code}
        if not url:
            section.note("id", "question", "no repository is given; --code ships a folder")
            return program
        if not re.fullmatch(_FOLDER, folder):
            raise section.error("workdir", f"{folder!r} is not the name of a folder")
        text = "cloned by setup: its newest commit when a slice starts, as in jobman"
        self._repos.note(repo, "kept", f"{text}; --code ships a folder instead")
        clone = f"test -d ~/{folder} || git clone --branch {branch} {shlex.quote(url)} ~/{folder}"
        program["run"]["command"] = f"cd ~/{folder}\n{command}"
        program["setup"] = f"{base.get('setup', '')}\n{clone}".strip()
        return program

    def _after(self, task: Task) -> list[str]:
        wanted = [str(one) for one in task.section.items("depends_on")]
        for id in wanted:
            if id not in self.tasks:
                text = f"there is no task {id}; jobman would wait for ever"
                raise task.section.error("depends_on", text, "Correct it, or remove it.")
        return list(dict.fromkeys(self.names[id] for id in wanted if id in self.names))
