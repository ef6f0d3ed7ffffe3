"""Imports jobman's queue: turns `tasks.yaml`, with its state, and the job YAMLs beside it into job files.

`jobman_worker.py` reads the slice and the hosts of a worker, and has the table of keys.
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
    """A task of jobman, with its state."""

    section: Section
    id: str
    type: str
    given: Mapping[str, Any]  #: the task's keys, with the inherited ones
    state: Section

    @property
    def failed(self) -> bool:
        """Whether jobman has given the task up."""
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
    """Return the jobs of these texts, by file name: one for each task that has not run and for each job YAML with a
    command. `code`: a folder to ship instead of a clone. Raise BadSpec with file and line."""
    reading = ImportReading(TABLE)
    all_documents = [document for name, text in files.items() for document in documents(text, name)]
    machines = [read_machine(d, reading) for d in all_documents if "tpu" in d.data]
    states = {d.source: d for d in all_documents if isinstance(d.data.get("tasks"), dict)}
    queues = [d for d in all_documents if "tpu" not in d.data and d.source not in states]
    drafts, taken, done = list[JobDraft](), list[str](), list[str]()
    for document in queues:
        path = PurePath(document.source)
        state = states.pop(str(path.with_name(f"{path.stem}_state.yaml")), None)
        workers = [machine for machine in machines if PurePath(machine.queue).name == path.name]
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
    """A file of tasks, with its state."""

    def __init__(
        self, document: Document, state: Document | None, reading: ImportReading, code: str
    ) -> None:
        top = Section(document, reading)
        self._code = code
        self._repos = top.child("repos", "repos")
        self._repos.unknown = "no task names it"
        groups, defaults = top.child("accelerators"), top.child("defaults")
        typed_groups = [(type, groups.child(type, "accelerators[]")) for type in groups.values]
        for key, value in defaults.values.items():
            if isinstance(value, dict):
                text = "jobman finds no task here: it is under `defaults`, not `accelerators`"
                defaults.note(key, "question", f"{text}; read as meant")
                typed_groups.append((key, defaults.child(key, "accelerators[]")))
        empty = Section(Document(document.source, {}, document.lines), reading)
        state_section = Section(state, reading).child("tasks") if state else empty
        states = {id: state_section.child(id, "state[]") for id in state_section.values}
        self.tasks: dict[str, Task] = {}
        self.names: dict[str, str] = {}  #: job names of the tasks that have not run, by id
        for type, group in typed_groups:
            inherited = {key: {**defaults.values, **group.values}.get(key) for key in INHERITED}
            inherited["zone"] = defaults.values.get("zone")
            for section in group.children("tasks", "tasks[]"):
                id = str(section.get("id", str, int) or "")
                if not id or not type or not section.get("run", str):
                    raise section.error("", "a task needs id and run, below an accelerator")
                if id in self.tasks:
                    line = self.tasks[id].section.line("id")
                    text = f"{id} is also in line {line}; in jobman both share one state"
                    raise section.error("id", text, "Give one of them another id.")
                api_type = section.checked("accelerator", accelerators.find, type).type
                task_state = states.pop(id, empty)
                values = {**inherited, **section.values}
                self.tasks[id] = Task(section, id, api_type, values, task_state)
        for section in states.values():
            section.note("", "warning", "there is no such task; left out")

    def drafts(
        self, workers: Sequence[Machine], taken: list[str], while_running: bool
    ) -> list[JobDraft]:
        """Return a draft for each task that has not run, and add their names to `taken`."""
        open_tasks = [task for task in self.tasks.values() if not task.done]
        running = [task for task in open_tasks if task.running]
        if running and not while_running:
            lines = (f"{task.state.place}: {task.id} is running in jobman" for task in running)
            hint = "Stop jobman's workers, or import these tasks held: --while-jobman-runs"
            raise BadSpec("\n".join(lines), hint=hint)
        for task in open_tasks:
            self.names[task.id] = job_name(task.id, taken)
            taken.append(self.names[task.id])
        for worker in workers:
            if not any(worker.fits(task.type, task.given["zone"]) for task in open_tasks):
                text = "it has no task: jobman keeps its slice, which is billed, for ever"
                worker.section.note("tpu", "warning", f"{text}; nothing is imported of it")
        return [self._draft(task, workers) for task in open_tasks]

    def _draft(self, task: Task, workers: Sequence[Machine]) -> JobDraft:
        section, name = task.section, self.names[task.id]
        of_type = [worker for worker in workers if worker.spec["tpu"]["type"] == task.type]
        fitting = [worker for worker in of_type if worker.fits(task.type, task.given["zone"])]
        base: dict[str, Any] = {"tpu": {"pricing": "spot"}, "run": {}}
        base |= (fitting or of_type)[0].spec if of_type else {}
        tpu = {**base["tpu"], "type": task.type, "zones": _zones(task, workers)}
        spec = {**base, "name": name, "tpu": tpu, **self._program(task, base)}
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
        """Return the keys of the command and of its code: the folder of `--code`, or a clone that setup makes."""
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
        """Return the job names of the tasks on which the task depends."""
        ids = [str(id) for id in task.section.items("depends_on")]
        for id in ids:
            if id not in self.tasks:
                text = f"there is no task {id}; jobman would wait for ever"
                raise task.section.error("depends_on", text, "Correct it, or remove it.")
        return list(dict.fromkeys(self.names[id] for id in ids if id in self.names))


def _zones(task: Task, workers: Sequence[Machine]) -> list[str]:
    """Return the zone of the task, or else those of the workers with its type."""
    section, zone = task.section, task.given["zone"]
    if not zone:
        text = "without a zone no worker of jobman takes it; the zones of the workers are used"
        section.note("id", "warning", text)
        specs = (worker.spec["tpu"] for worker in workers)
        return [tpu["zones"] for tpu in specs if tpu["type"] == task.type and tpu.get("zones")]
    if workers and not any(worker.fits(task.type, zone) for worker in workers):
        text = f"no worker of jobman has {task.type} in {zone}: jobman would wait for ever"
        section.note("id", "warning", text)
    return [section.checked("zone", fields.zone, zone)]
