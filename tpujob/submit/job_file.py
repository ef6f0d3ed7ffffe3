"""Reads the job file of a command, checks it as far as this machine can, and packs its folder of code."""

from __future__ import annotations

import os
import re
import shlex
import socket
import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tpujob.config import files
from tpujob.domain.host.plan import options
from tpujob.domain.spec import FROM_FILE, JobSpec, elements, jobspec, yaml
from tpujob.domain.text import clean
from tpujob.errors import BadSpec
from tpujob.submit.import_plan import job_name
from tpujob.submit.program import missing_script
from tpujob.submit.secrets_scan import key_below

if TYPE_CHECKING:
    from tpujob.submit.archive import Bundle

T = TypeVar("T")

CHECKED = 100  #: number of a group's elements whose arguments are checked
#: keys that only the files of another tool have
_SKYPILOT = r"(?m)^(?:resources|file_mounts|workdir|num_nodes|envs|service|config|experimental):"
_JOBMAN = (
    r"(?m)^(?:accelerators|defaults|repos|tasks):|^job:[ \t]*(?:[{#]|$)|^[ \t]+allocation_mode:"
)
FILE = "file://"  #: prefix of a data source that is a folder, followed by its machine


def warn(text: str) -> None:
    """Write a warning to standard error."""
    print(f"warning: {text}", file=sys.stderr, flush=True)


def read(file: Path, name: str, *, cross_region: bool, values: Sequence[str] = ()) -> JobSpec:
    """Return the spec in the file, changed by the options of the command line. `values`: those of `--set`."""
    text = files.read(file)
    try:
        keys = jobspec.dump(jobspec.load(text, str(file)))
    except BadSpec:
        _refuse_other_tools(text, file)
        raise
    keys["tpu"]["allow_cross_region"] |= cross_region
    for value in values:
        _apply_setting(keys, value)
    return prepare({**keys, "name": name or keys["name"]}, file)


def _refuse_other_tools(text: str, file: Path) -> None:
    """Raise BadSpec with the command that reads a file of Slurm, SkyPilot or jobman."""
    name = shlex.quote(str(file))
    if re.search(r"(?m)^#SBATCH\b", text):
        what = "a script of Slurm"
        hint = (
            f"`tpujob run --type v4-8 --code . -- bash {name}` runs its commands, without `srun` and the "
            "#SBATCH lines. `tpujob import` reads files of SkyPilot and jobman."
        )
    elif re.search(_JOBMAN, text):
        what, hint = "a file of jobman", f"`tpujob import jobman {name}` makes job files of it."
    elif re.search(_SKYPILOT, text) and not re.search(r"(?m)^tpu:", text):
        what, hint = (
            "a task of SkyPilot",
            f"`tpujob import skypilot {name}` makes a job file of it.",
        )
    else:
        return
    raise BadSpec(f"{file}: is {what}, not a job file", hint=hint)


def _apply_setting(keys: dict[str, Any], text: str) -> None:
    """Set the value of `run.env.LR=1e-3` in the keys; several values make a parameter of the matrix. Raise BadSpec."""
    path, equals, written = text.partition("=")
    *parents, key = path.split(".")
    if not equals or not key:
        raise BadSpec(f"--set {text}: must be KEY=VALUE", hint="Such as --set run.args.lr=1e-3.")
    # a command may have commas and braces; an empty text is a value, too
    is_text = path == "run.command" or not written.strip()
    values = [written] if is_text else _values(written, as_written=parents == ["run", "env"])
    if len(values) != 1:
        if parents not in (["run", "args"], ["run", "env"]):
            raise BadSpec(
                f"--set {path}: only keys below run.args and run.env take several values",
                hint="Put text with a comma into quotes.",
            )
        values = _values(written, as_written=True)
        keys["matrix"] = {**(keys["matrix"] or {}), key: values}
        values = [f"{{{key}}}"]
    parent = keys
    for part in parents:
        if not isinstance(parent.get(part), dict):  # `jobspec.parse` reports what is wrong
            parent[part] = {}
        parent = parent[part]
    parent[key] = values[0]


def _values(written: str, *, as_written: bool) -> list[Any]:
    paths = [("values", yaml.EACH)] if as_written else []
    return yaml.load(f"values: [{written}]", "--set", paths).data["values"]


def prepare(keys: dict[str, Any], file: Path) -> JobSpec:
    """Return the spec of these keys; their paths are relative to the file. Raise BadSpec for invalid keys, missing
    files and arguments that the bundled program refuses."""
    spec = jobspec.parse(keys)
    _check_code(spec, file)
    _check_arguments(spec, file)
    data = jobspec.dump(spec)["data"]
    for entry in data:
        if "://" not in entry["from"]:
            entry["from"] = _folder_of_data(entry["from"], file)
    return jobspec.parse({**keys, "data": data})


def name_of(program: str) -> str:
    """Return a job name for a command: that of its program, such as `train` for `python3 train.py`."""
    words = [word for word in program.split() if word[0] != "-" and "=" not in word] or ["run"]
    script = next((word for word in words if word.endswith((".py", ".sh"))), words[0])
    return job_name(Path(script).stem, ())


def _folder_of_data(source: str, file: Path) -> str:
    """Return the source of a folder relative to the job file: machine and full path. Raise BadSpec if it is missing."""
    path = (file.parent / source).resolve()
    if not path.is_dir():
        problem = "is a file; data is a folder" if path.exists() else "is not there"
        raise BadSpec(f"{file}: data: {path} {problem}", hint=_path_hint(source))
    if not any(files for _, _, files in os.walk(path)):
        raise BadSpec(f"{file}: data: there is no file in {path}")
    if key := key_below(path):
        hint = (
            "Remove it: `tpujob secret set` and `run.secrets` give keys to a program. If it is none, "
            "`tpujob data sync` copies the folder, and `from:` names the copy."
        )
        raise BadSpec(f"{file}: data: {key} may be a key, and data goes to a bucket", hint=hint)
    return f"{FILE}{socket.gethostname()}{path}"


def _path_hint(path: str) -> str:
    as_it_is = " `~` and variables are not replaced." if path.startswith("~") or "$" in path else ""
    return f"Write the path relative to the job file.{as_it_is}"


def _check_code(spec: JobSpec, file: Path) -> None:
    """Raise BadSpec if the folder to ship, or the file of its environment, is missing. Without a folder, warn of a file
    of the command that is on this machine only."""
    if spec.code is None:
        missing = missing_script(spec.run.command or "", lambda _: False)
        if missing and missing.certain and not _may_bring_files(spec):
            raise BadSpec(
                f"{file}: run.command: {missing.path} will not be on the hosts, as no code is shipped",
                hint="`code: .` ships the folder of the job file (tpujob run: --code .).",
            )
        words = (word for word in (spec.run.command or "").split() if not word.startswith("/"))
        if local := next((word for word in words if os.path.isfile(file.parent / word)), None):
            warn(f"{local} is not shipped: ship its folder with `code: .` (tpujob run: --code .)")
        return
    folder = file.parent / spec.code
    if not folder.is_dir():
        raise BadSpec(
            f"{file}: code: {folder} is not a folder",
            hint=_path_hint(spec.code),
        )
    if spec.env is None or spec.env.kind not in FROM_FILE:
        return
    if not (folder / spec.env.source).is_file():
        raise BadSpec(
            f"{file}: env.{spec.env.kind}: there is no file {spec.env.source} in {folder}",
            hint="Write the path relative to the folder of `code`.",
        )
    text = (folder / spec.env.source).read_text(encoding="utf-8", errors="replace")
    if spec.run.workload is not None and "jax" not in text and "-r" not in text:
        warn(
            f"env.{spec.env.kind}: {spec.env.source} does not name jax, which {spec.run.workload} needs; "
            "without `env` it brings its own"
        )


def _may_bring_files(spec: JobSpec) -> bool:
    """Return whether something besides the code may put a script where the program starts."""
    return bool(spec.setup or spec.data or spec.mounts or (spec.env and spec.env.docker))


def _check_script(spec: JobSpec, file: Path, folder: Path, names: Collection[str]) -> None:
    """Raise BadSpec if the command runs a script that the shipped files lack; warn if something else may bring it."""

    def is_shipped(path: str) -> bool:
        paths = {path, os.path.relpath(os.path.realpath(folder / path), os.path.realpath(folder))}
        return "." in paths or any(
            n in paths or n.startswith(tuple(p + "/" for p in paths)) for n in names
        )

    missing = missing_script(spec.run.command or "", is_shipped)
    if missing is None:
        return
    there = os.path.lexists(folder / missing.path)
    why = "which git or .tpujobignore excludes" if there else "which is not in the folder of `code`"
    text = f"{file}: run.command: {missing.path}, {why}, will not be on the hosts"
    if missing.certain and not _may_bring_files(spec):
        raise BadSpec(text, hint="Correct its path, which is relative to the folder of `code`.")
    warn(f"{text}, unless the job itself makes it")


def _check_arguments(spec: JobSpec, file: Path) -> None:
    """Raise BadSpec for arguments that the bundled program refuses. Skip jobs with `code`: its version may differ."""
    if spec.run.workload is None or spec.code is not None:
        return
    from tpujob.submit import bundled

    name = spec.run.workload
    config, module = bundled.load("frame.config", name)
    tools = getattr(module, "TOOLS", ())
    jobs = [e.spec for e in elements.elements(spec, count=CHECKED)] if spec.is_group else [spec]
    for arguments in map(options, jobs):
        if any(argument.partition("=")[0] in tools for argument in arguments):
            continue  # the argument of a tool, which does not train
        try:
            config.read(getattr(module, f"{name.capitalize()}Config"), name, arguments)
        except config.ConfigError as error:
            raise BadSpec(
                f"{file}: run.args: {error}",
                hint=f"In a checkout of tpujob, `python -m workloads.{name} --help` describes the arguments.",
            ) from None


def naming_file(file: Path, ask: Callable[[], T]) -> T:
    """Return the backend's answer. Add the name of the file to a BadSpec, as the backend does not know the file."""
    try:
        return ask()
    except BadSpec as error:
        raise BadSpec(f"{file}: {error.message}", hint=error.hint) from error


def pack_code(spec: JobSpec, file: Path, *, allow_keys: bool) -> Bundle | None:
    """Return the bundle of the folder to ship; None: the job has none. Raise the errors of `archive.pack`, and BadSpec
    for a command that runs a script which is not in it."""
    if spec.code is None:
        return None
    from tpujob.submit.archive import pack

    folder = file.parent / spec.code
    bundle = pack(folder, allow_keys=allow_keys)
    _check_script(spec, file, folder, bundle.files)
    for warning in bundle.warnings:
        warn(f"code: {clean(warning)}")
    return bundle
