"""jobman's queue: `tasks.yaml` with its state, and the job YAMLs beside it, become job files.

The slice and the hosts of a worker, and the tables of keys, are in `jobman_job.py`.
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
from tpujob.submit.imports.jobman_job import (
    DROPPED,
    KEPT,
    SENTENCES,
    Machine,
    on_hosts,
    read_machine,
)
from tpujob.submit.imports.plan import ImportPlan, JobDraft, in_order, job_name
from tpujob.submit.imports.sections import ImportReading, Section, documents

#: keys that a task gets from its accelerator or from `defaults`; the zone from the latter alone
INHERITED = ("env", "repo", "branch", "workdir", "max_jobs", "max_retries")
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


def read_jobman(
    files: Mapping[str, str], *, code: str = "", while_running: bool = False
) -> ImportPlan:
    """The jobs of these texts, by file name: of each task that has not run, and of each job YAML with a command. `code`
    is a folder to ship in place of a clone. Raises BadSpec with file and line."""
    reading = ImportReading(KEPT, DROPPED, SENTENCES)
    found = [document for name, text in files.items() for document in documents(text, name)]
    machines = [read_machine(one, reading) for one in found if "tpu" in one.data]
    states = {one.source: one for one in found if isinstance(one.data.get("tasks"), dict)}
    queues = [one for one in found if "tpu" not in one.data and one.source not in states]
    drafts, taken = list[JobDraft](), list[str]()
    done = list[str]()
    for document in queues:
        path = PurePath(document.source)
        state = states.pop(str(path.with_name(f"{path.stem}_state.yaml")), None)
        workers = [one for one in machines if PurePath(one.queue).name == path.name]
        queue = _Queue(document, state, reading, code)
        drafts += queue.drafts(workers, taken, while_running)
        done += queue.done
    for state in states.values():
        Section(state, reading).note("tasks", "dropped", "its file of tasks is not here")
    for machine in machines:
        if "command" in machine.spec["run"]:
            called = machine.spec["name"]
            spec = machine.spec | {"name": job_name(called, taken)}
            taken.append(spec["name"])
            drafts.append(JobDraft(spec, machine.section.place, f"{called}, a job of jobman"))
    if not drafts and not done:
        text = f"there is no task and no job of jobman in {', '.join(files) or 'the folder'}"
        raise BadSpec(text, hint="Name tasks.yaml, the YAML of a job, or their folder.")
    return ImportPlan(in_order(drafts), reading.finish(), tuple(done))


class _Queue:
    """One file of tasks, with its state."""

    def __init__(
        self, document: Document, state: Document | None, reading: ImportReading, code: str
    ) -> None:
        self.tasks: dict[str, Task] = {}
        self.names: dict[str, str] = {}  #: of the tasks that have not run, by id
        self.done: list[str] = []
        self._top, self._code = Section(document, reading), code
        self._repos, self._defaults = self._top.child("repos", "repos"), self._top.child("defaults")
        self._repos.unknown = "no task names it"
        empty = Section(Document(document.source, {}, document.lines), reading)
        states = Section(state, reading).child("tasks") if state else empty
        self._states = {id: states.child(id, "state[]") for id in states.values}
        self._nothing = empty
        self._read()
        for id, one in self._states.items():
            if id not in self.tasks:
                one.note("", "warning", "stranger")

    def _read(self) -> None:
        groups, defaults = self._top.child("accelerators"), self._defaults
        found = [(type, groups.child(type, "accelerators[]")) for type in groups.values]
        for key, value in defaults.values.items():
            if isinstance(value, dict):
                defaults.note(key, "question", "placed")
                found.append((key, defaults.child(key, "accelerators[]")))
        for type, group in found:
            if "zone" in group:
                group.note("zone", "question", "group zone")
            for task in group.children("tasks", "tasks[]"):
                self._add(task, type, {**defaults.values, **group.values})
        for task in self._top.children("tasks"):
            task.note("id", "warning", "flat")
            self._add(task, task.text("accelerator"), defaults.values)

    def _add(self, section: Section, type: str, inherited: Mapping[str, Any]) -> None:
        id = str(section.get("id", str, int) or "")
        if not id or not type or not section.get("run", str):
            raise section.error("", "a task needs id, run and accelerator")
        if id in self.tasks:
            text = f"{id} is also in line {self.tasks[id].section.line('id')}; in jobman both share one state"
            raise section.error("id", text, "Give one of them another id.")
        given = {key: inherited.get(key) for key in INHERITED}
        given |= {"zone": self._defaults.values.get("zone"), **section.values}
        type = section.checked("accelerator", accelerators.find, type).type
        self.tasks[id] = Task(section, id, type, given, self._states.get(id, self._nothing))

    def drafts(
        self, workers: Sequence[Machine], taken: list[str], while_running: bool
    ) -> list[JobDraft]:
        """A draft for each task that has not run. Adds their names to those that are taken."""
        wanted = [task for task in self.tasks.values() if not task.done]
        running = [task for task in wanted if task.state.items("running")]
        if running and not while_running:
            text = "\n".join(f"{one.state.place}: {one.id} is running in jobman" for one in running)
            hint = "Stop jobman's workers, or import these tasks held: --while-jobman-runs"
            raise BadSpec(text, hint=hint)
        for task in self.tasks.values():
            if task.done:
                self.done.append(task.id)
                task.state.note("done", "dropped", "has run")
                continue
            self.names[task.id] = job_name(task.id, taken)
            taken.append(self.names[task.id])
            if task.state.get("priority", bool):
                task.state.note("priority", "question", "first", name=taken[-1])
        for worker in workers:
            if not any(worker.fits(task.type, task.given["zone"]) for task in wanted):
                worker.section.note("tpu", "warning", "idle")
        return [self._draft(task, workers) for task in wanted]

    def _draft(self, task: Task, workers: Sequence[Machine]) -> JobDraft:
        section, zone = task.section, task.given["zone"]
        of_type = [one for one in workers if one.spec["tpu"]["type"] == task.type]
        fitting = [one for one in of_type if one.fits(task.type, zone)]
        base: dict[str, Any] = {"name": "", "tpu": {"pricing": "spot"}, "run": {}}
        base |= (fitting or of_type)[0].spec if of_type else {}
        zones = [one.spec["tpu"].get("zones", "") for one in of_type]
        if zone:
            zones = [section.checked("zone", fields.zone, zone)]
        else:
            section.note("id", "warning", "no zone")
        if zone and workers and not fitting:
            section.note("id", "warning", "no worker", type=task.type, zone=zone)
        section.note("run", "warning", "silent")
        spec = {**base, "name": self.names[task.id]}
        spec["tpu"] = {**base["tpu"], "type": task.type, "zones": [one for one in zones if one]}
        spec |= self._program(task, base)
        copies = section.checked("max_jobs", fields.count(10_000, 1), task.given["max_jobs"] or 1)
        if copies > 1:
            spec["array"] = copies
            section.note("max_jobs", "question", "replicas", n=copies)
        if task.given["max_retries"] is not None:
            attempts = section.checked("max_retries", fields.count(1000), task.given["max_retries"])
            spec["recovery"] = {"failures": (attempts or 3) - 1}  # 0 is read as the default
        spec["after"] = self._after(task)
        if task.failed or task.state.items("running"):
            spec["start"] = "held"
            why = "failed" if task.failed else "running"
            task.state.note("", "warning", why, n=task.state.get("fail_count") or "too many")
        return JobDraft(spec, section.place, f"{task.id}, a task of jobman")

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
            for key in {"repo", "branch", "workdir"} & {*section.values}:
                section.note(key, "dropped", "shipped")
            self._repos.note(repo, "dropped", "shipped")
            if f"~/{folder}" in command:
                section.note("run", "warning", "code", folder=folder)
            return program | {"code": self._code}
        if not url:
            section.note("id", "question", "no repo")
            return program
        if not re.fullmatch(_FOLDER, folder):
            raise section.error("workdir", f"{folder!r} is not the name of a folder")
        self._repos.note(repo, "kept", "branch")
        clone = f"test -d ~/{folder} || git clone --branch {branch} {shlex.quote(url)} ~/{folder}"
        program["run"]["command"] = f"cd ~/{folder}\n{command}"
        program["setup"] = f"{base.get('setup', '')}\n{clone}".strip()
        return program

    def _after(self, task: Task) -> list[str]:
        wanted = [str(one) for one in task.section.items("depends_on")]
        if wanted:
            task.section.note("depends_on", "warning", "ended")
        for id in wanted:
            if id not in self.tasks:
                text = f"there is no task {id}; jobman would wait for ever"
                raise task.section.error("depends_on", text, "Correct it, or remove it.")
        return list(dict.fromkeys(self.names[id] for id in wanted if id in self.names))
