"""Reads the job file of a command, checks it as far as this machine can before the backend is asked, and ships the
folder of code that it names."""

from __future__ import annotations

import importlib
import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from tpujob.config import files
from tpujob.domain.host.plan import options
from tpujob.domain.spec import FROM_FILE, JobSpec, elements, jobspec, yaml
from tpujob.domain.spec.group import value_text
from tpujob.domain.text import clean
from tpujob.errors import BadSpec
from tpujob.submit.import_plan import job_name

if TYPE_CHECKING:
    from tpujob.submit.archive import Bundle

T = TypeVar("T")

CHECKED = 100  #: elements of a group whose arguments are checked
FILE = "file://"  #: begins the source of data that is a folder, with the machine that it is on


def warn(text: str) -> None:
    """Write a remark to standard error."""
    print(text, file=sys.stderr, flush=True)


def read(file: Path, name: str, *, cross_region: bool, values: Sequence[str] = ()) -> JobSpec:
    """The spec in the file, with what the command line says over it. `values`: as `--set` has them."""
    asked = jobspec.dump(jobspec.load(files.read(file), str(file)))
    asked["tpu"]["allow_cross_region"] |= cross_region
    for value in values:
        _set(asked, value)
    return prepare({**asked, "name": name or asked["name"]}, file)


def _set(asked: dict[str, Any], text: str) -> None:
    """Write the value of `run.env.LR=1e-3` to its place; of several, the name of a parameter with these values. Raises
    BadSpec."""
    path, equals, given = text.partition("=")
    *above, key = path.split(".")
    if not equals or not key:
        raise BadSpec(f"--set {text}: must be KEY=VALUE", hint="Such as --set run.args.lr=1e-3.")
    text_alone = path == "run.command"  # which may have commas and braces
    found = [given] if text_alone else yaml.load(f"values: [{given}]", "--set").data["values"]
    if len(found) != 1:
        if above not in (["run", "args"], ["run", "env"]):
            raise BadSpec(
                f"--set {path}: only keys below run.args and run.env take several values",
                hint="Put text with a comma into quotes.",
            )
        asked["matrix"] = {**(asked["matrix"] or {}), key: found}
        found = [f"{{{key}}}"]
    place = asked
    for part in above:
        if not isinstance(place.get(part), dict):  # the check of the whole says what is wrong in it
            place[part] = {}
        place = place[part]
    place[key] = value_text(found[0]) if above == ["run", "env"] else found[0]


def prepare(asked: dict[str, Any], file: Path) -> JobSpec:
    """The spec of these keys, whose paths are relative to the file. Raises BadSpec when a folder is not there."""
    spec = jobspec.parse(asked)
    _code_is_there(spec, file)
    _arguments_are_good(spec, file)
    data = jobspec.dump(spec)["data"]
    for one in data:
        if "://" not in one["from"]:
            one["from"] = _folder_of_data(one["from"], file)
    return jobspec.parse({**asked, "data": data})


def name_of(program: str) -> str:
    """A name for the job of a command: that of its program, such as `train` for `python3 train.py`."""
    words = [word for word in program.split() if word[0] != "-" and "=" not in word] or ["run"]
    script = next((word for word in words if word.endswith((".py", ".sh"))), words[0])
    return job_name(Path(script).stem, ())


def _folder_of_data(source: str, file: Path) -> str:
    """A folder relative to the job file, with its machine and its whole path. Raises BadSpec when it is not there."""
    found = (file.parent / source).resolve()
    if not found.exists():
        raise BadSpec(
            f"{file}: data: {found} is not there", hint="Write the path relative to the job file."
        )
    return f"{FILE}{socket.gethostname()}{found}"


def _code_is_there(of: JobSpec, file: Path) -> None:
    """Checks the folder to ship, and the file of its environment. Raises BadSpec. Without such a folder, warns of a
    file of the command that is only here."""
    if of.code is None:
        words = (word for word in (of.run.command or "").split() if not word.startswith("/"))
        if left := next((word for word in words if os.path.isfile(file.parent / word)), None):
            warn(f"{left} is not shipped: ship its folder with `code: .` (tpujob run: --code .)")
        return
    folder = file.parent / of.code
    if not folder.is_dir():
        raise BadSpec(
            f"{file}: code: {folder} is not a folder",
            hint="Write the path relative to the job file.",
        )
    if of.env is None or of.env.kind not in FROM_FILE:
        return
    if not (folder / of.env.source).is_file():
        raise BadSpec(
            f"{file}: env.{of.env.kind}: there is no file {of.env.source} in {folder}",
            hint="Write the path relative to the folder of `code`.",
        )
    text = (folder / of.env.source).read_text(encoding="utf-8", errors="replace")
    if of.run.workload is not None and "jax" not in text and "-r" not in text:
        warn(
            f"env.{of.env.kind}: {of.env.source} does not name jax, which {of.run.workload} needs; "
            "without `env` it brings its own"
        )


def _arguments_are_good(of: JobSpec, file: Path) -> None:
    """Raises BadSpec for arguments that the bundled program would refuse on its slice. With `code`, that may hold
    another version of it, and is not asked."""
    if of.run.workload is None or of.code is not None:
        return
    from workloads.frame import config

    name = of.run.workload
    module = importlib.import_module(f"workloads.{name}")
    parts = [one.spec for one in elements.elements(of, count=CHECKED)] if of.is_group else [of]
    for given in map(options, parts):
        if any(one.partition("=")[0] in getattr(module, "TOOLS", ()) for one in given):
            continue  # a tool beside the training
        try:
            config.read(getattr(module, f"{name.capitalize()}Config"), name, given)
        except config.ConfigError as error:
            raise BadSpec(
                f"{file}: run.args: {error}",
                hint=f"`python -m workloads.{name} --help` describes the arguments.",
            ) from None


def named(file: Path, ask: Callable[[], T]) -> T:
    """What the backend answers. Raises BadSpec that names the file, which the backend has never seen."""
    try:
        return ask()
    except BadSpec as error:
        raise BadSpec(f"{file}: {error.message}", hint=error.hint) from error


def packed(of: JobSpec, file: Path, *, allow_keys: bool) -> Bundle | None:
    """The folder to ship, packed; None: there is none. Raises BadRequest, naming files, such as those that look like
    keys, unless `allow_keys`."""
    if of.code is None:
        return None
    from tpujob.submit.archive import pack

    bundle = pack(file.parent / of.code, allow_keys=allow_keys)
    for warning in bundle.warnings:
        warn(f"code: {clean(warning)}")
    return bundle
