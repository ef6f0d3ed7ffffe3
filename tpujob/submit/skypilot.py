"""Imports SkyPilot's task YAML: one job file for each document; each job waits for the one before."""

import re
import shlex
from collections.abc import Callable, Collection, Mapping
from pathlib import PurePath
from typing import Any, cast

from tpujob.domain.hardware import accelerators
from tpujob.domain.spec import jobspec
from tpujob.domain.spec.data import name_of, variable_of
from tpujob.domain.spec.yaml import EACH, plain
from tpujob.errors import BadSpec
from tpujob.submit.import_keys import ImportReading, Outcome, Section, documents
from tpujob.submit.import_plan import (
    ImportPlan,
    JobDraft,
    PathKind,
    add_variable,
    in_order,
    is_secret_name,
    job_name,
)

#: outcome of each key; `resources` stands also for the entries of any_of and ordered
TABLE: dict[Outcome, dict[str, str]] = {
    "kept": {
        "name": "name",
        "code": "workdir",
        "setup, as git fetch": "workdir.url workdir.ref",
        "tpu.slices": "num_nodes",
        "tpu.type": "resources.accelerators",
        "tpu.zones": "resources.infra resources.region resources.zone resources.cloud",
        "tpu.pricing": "resources.use_spot",
        "tpu.runtime_version": "resources.accelerator_args.runtime_version",
        "env.docker": "resources.image_id",
        "recovery.failures": "resources.job_recovery.max_restarts_on_errors",
        "priority": "resources.priority",
        "after": "execution",
        "setup": "setup",
        "run.command": "run",
    },
    "dropped": {
        "all zones are tried, and a preempted job resumes": "resources.job_recovery.strategy resources.job_recovery",
        "a type of TPU has its own": "resources.cpus resources.memory resources.instance_type resources.disk_size "
        "resources.disk_tier resources.network_tier resources.ephemeral_storage resources.local_disk resources.ports",
        "every slice here is of TPU VMs, and tpujob names it": "resources.accelerator_args.tpu_vm "
        "resources.accelerator_args.tpu_name",
        "a slice is released when its job ends": "resources.autostop pool",
        "`budget` limits the cost of the whole job": "resources.max_hourly_cost",
        "exit code 75 asks for another attempt here": "resources.job_recovery.recover_on_exit_codes",
        "all requests of Cloud TPU are queued": "resources.accelerator_args.gcp_queued_resource",
    },
}
_RENAMED = {
    "SKYPILOT_NODE_RANK": "TPUJOB_HOST",
    "SKYPILOT_SETUP_NODE_RANK": "TPUJOB_HOST",
    "SKYPILOT_NUM_NODES": "TPUJOB_HOSTS",
    "SKYPILOT_TASK_ID": "TPUJOB_JOB",
}
_NO_EQUAL = {
    "SKYPILOT_NODE_IPS": "TPUJOB_COORDINATOR is address and port of host 0",
    "SKYPILOT_SETUP_NODE_IPS": "TPUJOB_COORDINATOR is address and port of host 0",
    "SKYPILOT_NUM_GPUS_PER_NODE": "the program asks its framework for the chips of its host",
    "TPU_NAME": "the program runs on the TPU VM itself",
}
#: SkyPilot's name of a storage -> start of a bucket's address
_STORES = {"gcs": "gs://", "s3": "s3://"}
#: text of a command or of a variable that means something else on a host here -> what to do
_ELSEWHERE = {
    r"\bsky_workdir\b": "there is no ~/sky_workdir: the program starts in the folder of `code`; write paths from there",
    r"\bsky_logs\b": "there is no ~/sky_logs: `tpujob logs` has the output",
    r"\bconda (?:activate|create)\b": "a TPU VM has no conda: name a file in `env.conda`, or install it in setup",
}


def read_skypilot(
    text: str,
    source: str,
    env: Mapping[str, str] | None = None,
    kind_of: Callable[[str], PathKind] = lambda _: "folder",
) -> ImportPlan:
    """Return the jobs of a file. `env`: values that replace those of `envs`; `kind_of`: what a local path is. Raise
    BadSpec with file and line."""
    reading, drafts = ImportReading(TABLE), list[JobDraft]()
    parts = documents(text, source, [("envs", EACH)])
    tasks = [Section(document, reading) for document in parts]
    header = tasks.pop(0) if tasks and not {"run", "resources"} & {*tasks[0].values} else None
    if header and header.get("execution") == "parallel":
        hint = "Make a file of each task, and import each."
        raise header.error("execution", "jobs that start together have no equal", hint)
    if not tasks:
        raise BadSpec(f"{source}: there is no task in it", hint="Name a task YAML of SkyPilot.")
    stem = (header.text("name") if header else "") or PurePath(source).stem
    names: list[str] = []
    for number, task in enumerate(tasks, 1):
        name = task.text("name") or (f"{stem}-{number}" if len(tasks) > 1 else stem)
        spec: dict[str, Any] = {"name": job_name(name, names), **_spec(task, env or {}, kind_of)}
        spec["after"] = names[-1:]
        if names:
            task.note("", "warning", f"starts when {names[-1]} has succeeded")
        names.append(spec["name"])
        drafts.append(JobDraft(spec, task.place))
    return ImportPlan(in_order(drafts), reading.finish())


def _spec(
    task: Section, env: Mapping[str, str], kind_of: Callable[[str], PathKind]
) -> dict[str, Any]:
    if "service" in task or not task.text("run"):
        raise task.error("", "a job has `run`, and no `service`", "Import the tasks that end.")
    resources = task.child("resources")
    spec: dict[str, Any] = {"tpu": _tpu(task, resources), "run": {}}
    image = str(resources.get("image_id") or "")
    if image.startswith("docker:"):
        spec["env"] = {"docker": image.removeprefix("docker:")}
    elif image:
        text = "only docker: images run here; the TPU VM has its usual image"
        resources.note("image_id", "dropped", text)
    if isinstance(resources.get("job_recovery"), dict):
        recovery = resources.child("job_recovery")
        spec["recovery"] = {"failures": recovery.get("max_restarts_on_errors", int)}
    if priority := resources.get("priority", int):
        spec["priority"] = "high" if priority > 0 else "low"
    variables = _add_variables(task, spec, env)
    _add_commands(task, spec)
    _add_code(task, spec, variables)
    if (code := spec.get("code")) and kind_of(code) in ("file", "missing"):
        task.note("workdir", "warning", f"there is no folder {code} here")
    _add_file_mounts(task.child("file_mounts"), spec, variables, kind_of)
    return spec


def _add_commands(task: Section, spec: dict[str, Any]) -> None:
    """Add set-up and command to the spec, with tpujob's names of variables."""
    for key in ("setup", "run"):
        text = task.text(key)
        for old, new in _RENAMED.items():
            renamed = re.sub(rf"\b{old}\b", new, text)
            if renamed != text:
                task.note(key, "warning", f"{old} is {new} in the text")
            text = renamed
        _warn_of_text(task, key, text, spec["run"].get("env", ()))
        spec[key] = text.strip() if key == "setup" else spec["run"] | {"command": text.strip()}


def _warn_of_text(section: Section, key: str, text: str, given: Collection[str] = ()) -> None:
    """Add warnings of what a text expects of SkyPilot and a host here has not; `given`: variables of the task."""
    names = re.findall(r"\bSKYPILOT_\w+|(?<=[${])TPU_NAME\b", text)
    for name in (name for name in dict.fromkeys(names) if name not in given):
        equal = f"is {_RENAMED[name]} here" if name in _RENAMED else "has no equal"
        reason = f": {_NO_EQUAL[name]}" if name in _NO_EQUAL else ""
        section.note(key, "warning", f"{name} {equal}{reason}")
    for pattern, advice in _ELSEWHERE.items():
        if re.search(pattern, text):
            section.note(key, "warning", advice)


def _add_code(task: Section, spec: dict[str, Any], variables: Mapping[str, str]) -> None:
    """Add the folder of code to the spec, or the commands that clone a repository."""
    workdir = task.get("workdir", str, dict)
    if isinstance(workdir, str):
        spec["code"] = _expand(workdir, variables)
    elif workdir:
        repository = task.child("workdir")
        url, ref = (shlex.quote(repository.text(key) or "HEAD") for key in ("url", "ref"))
        clone = f"git init -q ~/workdir; cd ~/workdir; git fetch -q --depth 1 {url} {ref}"
        spec["setup"] = f"{clone}; git checkout -q FETCH_HEAD\n{spec['setup']}".strip()
        spec["run"]["command"] = f"cd ~/workdir\n{spec['run']['command']}"


def _tpu(task: Section, base: Section) -> dict[str, Any]:
    """Return the types and zones of all entries of the resources, in order, with the pricing of the first."""
    kind = "any_of" if "any_of" in base else "ordered"
    types, zones, spots = list[str](), list[str](), list[bool]()
    versions = dict[str, Section]()
    for entry in base.children(kind, "resources") or [base]:
        merged = {**base.values, **entry.values}
        if entry_types := _types(entry, merged):
            spots.append(bool(merged.get("use_spot")))
            types = list(dict.fromkeys([*types, *entry_types]))
            zones += _zones(entry, merged, entry_types)
            args = (entry if "accelerator_args" in entry else base).child("accelerator_args")
            versions.setdefault(_runtime_version(args), args)
            if "use_spot" not in merged:
                text = "without use_spot SkyPilot takes on-demand, and so does this job"
                entry.note("accelerators", "warning", text)
    if not types:
        hint = "Write accelerators such as tpu-v6e-8."
        key = "accelerators" if "accelerators" in base else ""
        raise base.error(key, "asks for no TPU", hint)
    if len({*spots}) > 1:
        base.note(kind, "question", "one job has one pricing: that of the first entry")
    if len({accelerators.region_of(zone) for zone in zones}) > 1:
        text = "a job stays in the region of its bucket, unless tpu.allow_cross_region is set"
        base.note("", "warning", text)
    if (nodes := task.get("num_nodes", int) or 1) > 1:
        text = (
            f"SkyPilot sets no Multislice variables; here {nodes} slices run the program together"
        )
        task.note("num_nodes", "warning", text)
    pricing = "spot" if spots[0] else "on-demand"
    type = types[0] if len(types) == 1 else types
    slices = nodes if nodes > 1 else None
    version, *others = versions
    if others or len({accelerators.find(name).generation for name in types}) > 1:
        for text, args in versions.items():
            if text:
                reason = "left out: one job has one, and its types have several"
                args.note("runtime_version", "question", reason)
        version = ""
    tpu = {"type": type, "zones": zones, "pricing": pricing, "slices": slices}
    return {**tpu, "runtime_version": version}


def _runtime_version(args: Section) -> str:
    """Return the software of a TPU VM; empty: the usual one, also in place of a TPU Node's."""
    version = str(args.get("runtime_version", str, float) or "")
    if args.get("tpu_vm") is False:
        text = (
            "TPU Nodes exist no more: the program runs on the TPU VMs, without an address of a TPU"
        )
        args.note("tpu_vm", "warning", text)
    if version[:1].isdigit():
        text = (
            f"left out: {version} is the TensorFlow of a TPU Node; a TPU VM has its usual software"
        )
        args.note("runtime_version", "question", text)
        return ""
    return version


def _types(entry: Section, merged: Mapping[str, Any]) -> list[str]:
    """Return the TPU types of an entry; none for an entry of another cloud."""
    cloud = str(merged.get("cloud") or str(merged.get("infra") or "gcp").partition("/")[0])
    if cloud.lower() not in ("gcp", "*"):
        for key in entry.values:
            entry.note(key, "dropped", f"{cloud} has no TPUs of Google: this entry is left out")
        return []
    requested: Any = merged.get("accelerators") or ()
    if isinstance(requested, int | float):
        raise entry.error("accelerators", "must name types, such as tpu-v6e-8")
    if isinstance(requested, dict):
        requested = [f"{name}:{count or 1}" for name, count in cast("Any", requested).items()]
    types: list[str] = []
    for name in map(str, [requested] if isinstance(requested, str) else requested):
        type, _, count = re.sub(r"^tpu-?(?=v\d)", "", name.lower()).partition(":")
        if not name.lower().startswith("tpu"):
            entry.note("accelerators", "dropped", f"{name} is not a TPU: this entry is left out")
        elif count not in ("", "1"):
            raise entry.error("accelerators", f"{name}: a slice is one TPU", "Write num_nodes.")
        else:
            types.append(entry.checked("accelerators", accelerators.find, type).type)
    return types


def _zones(entry: Section, merged: Mapping[str, Any], types: list[str]) -> list[str]:
    _, region, zone = [*str(merged.get("infra") or "").split("/"), "", ""][:3]
    region, zone = str(merged.get("region") or region), str(merged.get("zone") or zone)
    if zone not in ("", "*"):
        return [zone]
    if region in ("", "*"):
        return []
    all_zones = dict.fromkeys(name for type in types for name in accelerators.zones(type))
    in_region = [name for name in all_zones if name.startswith(f"{region}-")]
    if not in_region:
        key = "region" if merged.get("region") else "infra"
        hint = "Write another region, or a zone that has it."
        raise entry.error(key, f"{region} has no {' or '.join(types)}", hint)
    return in_region


def _add_variables(task: Section, spec: dict[str, Any], env: Mapping[str, str]) -> dict[str, str]:
    """Add `envs` and `secrets` to the spec and return the values of `envs`. Raise BadSpec for one without a value."""
    envs = task.child("envs")
    all_values: dict[str, Any] = {name: env.get(name, envs.values[name]) for name in envs.values}
    all_values |= {n: "" for n, value in all_values.items() if value is None and is_secret_name(n)}
    if missing := [name for name, value in all_values.items() if value is None]:
        hint = "Add " + " ".join(f"--env {name}=..." for name in missing)
        raise envs.error(missing[0], f"no value is given for {', '.join(missing)}", hint)
    # SkyPilot writes them as Python does: True, False
    truths = {n: plain(v) for n, v in all_values.items() if isinstance(v, str) and n not in env}
    all_values |= {name: value for name, value in truths.items() if isinstance(value, bool)}
    values = {name: str(value) for name, value in all_values.items()}
    for name, value in values.items():
        add_variable(envs, spec["run"], name, value)
        _warn_of_text(envs, name, value)
    for key in ("secrets", "managed_secrets"):
        for secret in cast("list[Any]", task.get(key, list, dict) or ()):
            for name in map(str, cast("Any", secret) if isinstance(secret, dict) else (secret,)):
                spec["run"].setdefault("secrets", []).append(name)
                task.note(key, "kept", f"run.secrets, without a value: tpujob secret set {name}")
    return values


def _expand(text: str, variables: Mapping[str, str]) -> str:
    return re.sub(r"\$\{?(\w+)\}?", lambda match: variables.get(match[1], match[0]), text)


def _add_file_mounts(
    mounts: Section,
    spec: dict[str, Any],
    variables: Mapping[str, str],
    kind_of: Callable[[str], PathKind],
) -> None:
    """Add mounts and data to the spec, without those that a job cannot have."""
    spec |= {"mounts": [], "data": []}
    for path in filter(mounts.__contains__, mounts.values):
        entry: Any = mounts.get(path, str, dict)
        entry = {"source": entry, "mode": "COPY"} if isinstance(entry, str) else entry
        store = _STORES.get(str(entry.get("store") or "gcs").lower(), "other://")
        source = entry.get("source") or f"{store}{entry.get('name')}"
        if not isinstance(source, str):
            mounts.note(path, "question", "left out: several sources; put them into one folder")
            continue
        source = _expand(source, variables)
        scheme, _, rest = source.rpartition("://")
        if "name" in entry and not scheme:
            text = f"SkyPilot keeps it in the bucket {entry['name']}; `mounts` has what the program writes"
            mounts.note(path, "warning", text)
        kind = "folder" if scheme else kind_of(source)
        if scheme == "gs":
            bucket, _, folder = rest.rstrip("/").partition("/")
            is_copy = str(entry.get("mode")).upper() == "COPY"
            mount = {"bucket": f"gs://{bucket}", "to": path, "read_only": is_copy}
            text = ", read-only, not a copy; for many small files use `data` with `stage: disk`"
            mount = {**mount, **({"only_dir": folder} if folder else {})}
            _add(mounts, path, spec, "mounts", mount, "kept", f"mounts{text if is_copy else ''}")
        elif kind == "keys":
            mounts.note(
                path, "question", "left out, as private keys never go to hosts: `tpujob secret set`"
            )
        elif kind == "file":
            text = "left out, as it is one file: put it into the folder of `code`"
            mounts.note(path, "question", text)
        elif kind == "missing":
            mounts.note(path, "question", f"left out, as there is no folder {source} here")
        elif scheme in ("", "s3", "https"):
            name = name_of(source) or name_of(path) or "data"
            taken = {variable_of(data["to"]) for data in spec["data"]}
            tries = (f"{name}-{number}" if number > 1 else name for number in range(1, 100))
            name = next(name for name in tries if variable_of(name) not in taken)
            variable = f"at {variable_of(name)} (TPUJOB_DATA if it is the only one), not at {path}"
            data = {"from": source, "to": name, "stage": "disk"}
            _add(
                mounts,
                path,
                spec,
                "data",
                data,
                "question",
                f"data: the program finds it {variable}",
            )
        else:
            text = "only gs://, s3://, https:// and local folders can be read; left out"
            mounts.note(path, "question", text)


def _add(
    mounts: Section,
    path: str,
    spec: dict[str, Any],
    key: str,
    part: dict[str, Any],
    outcome: Outcome,
    text: str,
) -> None:
    """Add a mount or data to the spec with its note; only a question, if a job cannot have it."""
    frame = {"name": "job", "tpu": {"type": "v4-8"}, "run": {"command": "true"}}
    try:
        jobspec.parse({**frame, key: [*spec[key], part]})
    except BadSpec as error:
        mounts.note(path, "question", f"left out: {error.message}")
    else:
        spec[key].append(part)
        mounts.note(path, outcome, text)
