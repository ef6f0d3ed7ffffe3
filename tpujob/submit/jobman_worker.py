"""Reads jobman's job YAML: the slice and the hosts of a worker, or of a job with its own command.

Also has the table of all of jobman's keys. `jobman.py` reads the tasks of workers.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import Any, cast

from tpujob.domain.hardware import accelerators
from tpujob.domain.spec import fields
from tpujob.domain.spec.yaml import Document
from tpujob.submit.import_keys import ImportReading, Outcome, Section
from tpujob.submit.import_plan import add_variable

#: keys that a task inherits from its accelerator or from `defaults`; only `defaults` has the zone
INHERITED = ("env", "repo", "branch", "workdir", "max_jobs", "max_retries")
TABLE: dict[Outcome, dict[str, str]] = {
    "warning": {
        "jobman judges by lines of output; here the exit code counts": "tasks[].run",
        "jobman ended such a command after 300 s; here it runs until it ends": "command.cmd",
        "after a failure jobman would wait for ever; here this job ends": "tasks[].depends_on",
    },
    "kept": {
        "name": "job.name tasks[].id",
        "tpu.type": "tpu.accelerator tasks[].accelerator",
        "tpu.zones": "tpu.zone tasks[].zone",
        "tpu.pricing": "tpu.pricing",
        "tpu.runtime_version": "tpu.version",
        "env": "job.env_type docker.image venv.python",
        "env; its folder is `code`": "conda.config_file venv.requirements_file",
        "mounts": "gcsfuse.bucket_name gcsfuse.mount_path",
        "setup": "job.queue.prefix prefix[].run prefix[].workers prefix[].required",
        "setup, as git clone": "tasks[].repo tasks[].branch tasks[].workdir",
        "run.command": "command.cmd tasks[].run",
        "run.command, on these hosts": "command.workers tasks[].workers",
        "recovery; success ends a job here, jobman ran it again": "job.loop",
        "recovery.failures, one less": "tasks[].max_retries",
        "after, on success": "tasks[].depends_on",
        "given to its tasks": "defaults.zone "
        + " ".join(f"{of}.{key}" for of in ("defaults", "accelerators[]") for key in INHERITED),
    },
    "question": {
        "left out: most are usual here, and others are `env.args`": "docker.flags",
        "left out: `run.env` has the variables of a program": "docker.env_vars",
        "left out: `env.args` gives the container a folder of the host": "docker.mount_dirs",
        "not used: jobman reads the zones of tasks and of defaults alone": "accelerators[].zone",
        "left out: write `cache` of the mount, or `data` with `stage: memory`": "gcsfuse.cache",
    },
    "dropped": {
        "the worker has it": "tasks[].env",
        "lists are filtered by name here": "tasks[].hide",
        "nothing here needs it": "job.queue.enabled job.queue.config job.remote_user job.worker_num job.id job.user "
        "job.dir tpu.allocation_mode tpu.name tpu.flags venv.name conda.name prefix[].name tasks[].max_jobs",
        "jobman reads no tasks outside `accelerators`": "tasks",
        "no code of jobman reads it": "tpu.tags tpu.metadata tpu.startup_script",
        "private keys never go to hosts": "ssh.private_key ssh.public_key ssh.identities",
        "the program starts in the folder of `code`": "docker.workdir",
        "`notify` sends messages": "brevo_email",
        "not the env_type": "docker conda venv",
        "a task that has run is left out": "state[].done",
        "counted from 0 here": "state[].run_count state[].fail_count state[].history state[].running state[].priority",
    },
}
PRICING = {"spot": "spot", "preemptible": "spot", "ondemand": "on-demand"}
_GCLOUD = re.compile(r"gcloud config|ssh-keygen|os-login|\.ssh/google_compute_engine")
_RUNNER = re.compile(r"multihost_runner\w*\.py.*--COMMAND=(\"[^\"]*\"|'[^']*'|\S+)", re.S)
_TPU_NAME = "${tpu.name}"


@dataclass(frozen=True, slots=True)
class Machine:
    """The slice and the hosts in a job YAML."""

    section: Section
    spec: dict[str, Any]  #: the keys of a job file
    queue: str  #: a worker's file of tasks; empty: the job has a command

    def fits(self, type: str, zone: str) -> bool:
        return (type, zone) == (self.spec["tpu"]["type"], self.spec["tpu"].get("zones", ""))


def read_machine(document: Document, reading: ImportReading) -> Machine:
    """Return the machine in a job YAML. Raise BadSpec for an invalid one."""
    document = replace(document, data=_resolve_references(document.data, document.data))
    top = Section(document, reading)
    job = top.child("job")
    queue = job.child("queue")
    top.child("ssh")
    spec: dict[str, Any] = {"name": job.text("name") or PurePosixPath(top.source).stem}
    spec |= {"tpu": _tpu(top.child("tpu")), "run": {}, "mounts": _mounts(top.child("gcsfuse"))}
    spec |= _environment(top, job.text("env_type"))
    variables = job.child("environment")
    for name in variables.values:
        if _TPU_NAME in (value := str(variables.get(name))):
            text = "no slice has that name here; TPUJOB_COORDINATOR is the address of host 0"
            variables.note(name, "dropped", text)
        elif name in variables:
            add_variable(variables, spec["run"], name, value)
    if job.get("loop", bool) is False:
        text = "jobman gave up at a preemption; `recovery: {attempts: 1}` does that"
        job.note("loop", "question", text)
    if worker := queue.get("enabled", bool):
        spec["setup"] = _setup(queue, spec["tpu"]["type"])
    command = top.child("command")
    if not worker and (text := command.text("cmd")):
        spec["run"]["command"] = on_hosts(command, "cmd", text, spec["tpu"]["type"], "all").strip()
    return Machine(top, spec, queue.text("config") if worker else "")


def _resolve_references(value: Any, top: Mapping[str, Any]) -> Any:
    """Return the value with references such as ${tpu.zone} replaced by their values."""
    if isinstance(value, dict):
        return {key: _resolve_references(part, top) for key, part in cast("Any", value).items()}
    if isinstance(value, list):
        return [_resolve_references(part, top) for part in cast("list[Any]", value)]

    def named(match: re.Match[str]) -> str:
        target: Any = top
        for part in match[1].split("."):
            target = cast("Any", target).get(part) if isinstance(target, dict) else None
        return str(target) if isinstance(target, str | int) and match[0] != _TPU_NAME else match[0]

    return re.sub(r"\$\{(\w+(?:\.\w+)+)\}", named, value) if isinstance(value, str) else value


def _tpu(tpu: Section) -> dict[str, Any]:
    type = tpu.checked("accelerator", accelerators.find, tpu.text("accelerator")).type
    pricing = fields.one_of(PRICING, "pricing")
    pricing = tpu.checked("pricing", pricing, tpu.text("pricing") or "spot")
    spec: dict[str, Any] = {"type": type, "pricing": PRICING[pricing]}
    spec["runtime_version"] = tpu.get("version", str)
    if "zone" in tpu:
        spec["zones"] = tpu.checked("zone", fields.zone)
    for flag in map(str, tpu.items("flags")):
        if flag == "--reserved":
            spec["pricing"] = "reserved"
            tpu.note("flags", "kept", "tpu.pricing")
        else:
            tpu.note("flags", "question", f"{flag} has no equal in a job file; a context may have")
    return spec


def _mounts(gcsfuse: Section) -> list[dict[str, Any]]:
    mounts: list[dict[str, Any]] = []
    for section in (gcsfuse, *gcsfuse.children("extra_mounts", "gcsfuse")):
        bucket = (section.text("bucket_name") or gcsfuse.text("bucket_name")).removeprefix("gs://")
        path = section.text("mount_path")
        if path and not bucket:
            section.note("mount_path", "dropped", "no bucket is given")
        if not path or not bucket:
            continue
        target = re.sub(r"^/home/[^/]+", "~", path)
        if target != path:
            text = f"is {target} here: a command that names {path} must name {target}"
            section.note("mount_path", "warning", text)
        mounts.append({"bucket": f"gs://{bucket}", "to": target, "read_only": False})
    return mounts


def _environment(top: Section, kind: str) -> dict[str, Any]:
    """Return `env`, and `code`: the folder of the file that it reads."""
    if kind == "docker":
        block = top.child("docker")
        return {"env": {"docker": block.get("image", str)}}
    block = top.child(kind) if kind in ("conda", "venv") else None
    key, into = ("config_file", "conda") if kind == "conda" else ("requirements_file", "uv")
    if block is None or not (file := block.text(key)):
        return {}
    python = str(block.get("python") or "").removeprefix("python") if kind == "venv" else ""
    path = PurePosixPath(file)
    return {"env": {into: path.name, "python": python}, "code": str(path.parent)}


def _setup(queue: Section, type: str) -> str:
    """Return the prefix scripts, each on its hosts; as in jobman, only a required script may end the job."""
    if isinstance(queue.get("prefix"), str):
        scripts = [(queue, "prefix")]
    else:
        scripts = [(script, "run") for script in queue.children("prefix", "prefix[]")]
    parts: list[str] = []
    for section, key in scripts:
        lines = section.text(key).strip().splitlines()
        used = [line for line in lines if not _GCLOUD.search(line)]
        if used != lines:
            text = (
                "lines with gcloud config, ssh-keygen and os-login are left out: tpujob needs none"
            )
            section.note(key, "warning", text)
        if any(line.lstrip().startswith("export ") for line in used):
            text = "a program does not get what setup exports; use run.env"
            section.note(key, "warning", text)
        if any(line.strip() and not line.lstrip().startswith("echo ") for line in used):
            script = on_hosts(section, key, "\n".join(used), type)
            end = ")" if section.get("required", bool) else ") || true"
            parts.append(f"(\n{script}\n{end}")
    return "\n".join(parts)


def on_hosts(section: Section, key: str, command: str, type: str, usual: int | str = 0) -> str:
    """Return the command, which ends at once on hosts that `workers` does not name, as every host starts it."""
    numbers, hosts = section.items("workers") or [usual], accelerators.find(type).hosts
    if numbers == ["all"]:
        return command
    for number in numbers:
        section.checked("workers", fields.count(100_000), number)
    if {*range(hosts)} <= {*numbers}:
        return command
    if runner := _RUNNER.search(command):
        text = "multihost_runner is left out: every host starts its --COMMAND"
        section.note(key, "warning", text)
        return runner[1].strip("\"'")
    if "workers" not in section:
        text = f"without the test of TPUJOB_HOST all {hosts} hosts do"
        section.note(key, "warning", f"host 0 alone runs it, as in jobman; {text}")
    tests = " || ".join(f'[ "$TPUJOB_HOST" = {number} ]' for number in numbers)
    return f"{tests} || exit 0\n{command}"
