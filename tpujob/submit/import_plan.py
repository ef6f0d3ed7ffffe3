"""The result of an import: job files, in the order in which they can be created, and the outcome of every key.

Checks the text of each job file as `tpujob create` does, before any file is written.
"""

import hashlib
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, Literal, cast

import yaml

from tpujob.domain.spec import jobspec
from tpujob.domain.spec.yaml import plain
from tpujob.domain.text import clean
from tpujob.errors import BadRequest, BadSpec
from tpujob.submit.import_keys import KeyNote, Section
from tpujob.submit.secrets_scan import holds_a_key

#: what a path of this machine is: `keys` is a file or a folder that holds keys
PathKind = Literal["folder", "file", "keys", "missing"]

#: names of variables whose values are secrets
_SECRET = re.compile(r"(KEY|TOKEN|PASSWORD|PASSWD|CREDENTIALS?)$|SECRET|ACCESS_KEY", re.I)


@dataclass(frozen=True, slots=True)
class JobDraft:
    """A job file that is not written yet."""

    spec: dict[str, Any]  #: the keys of the job file
    place: str  #: the file and the line of its origin

    @property
    def name(self) -> str:
        return self.spec["name"]


@dataclass(frozen=True, slots=True)
class ImportPlan:
    """The job files and the notes of an import."""

    jobs: tuple[JobDraft, ...]  #: each after its dependencies
    notes: tuple[KeyNote, ...]
    done: tuple[str, ...] = ()  #: tasks that have run, so they are not imported


def job_name(text: str, taken: Collection[str]) -> str:
    """Return a valid job name that is not taken: the text, or a similar name."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "job"
    name = name if name[0].isalpha() else f"job-{name}"
    mark = hashlib.sha256(f"{text} {len(taken) if name in taken else ''}".encode()).hexdigest()[:6]
    return f"{name[:33].rstrip('-')}-{mark}" if len(name) > 40 or name in taken else name


def is_secret_name(name: str) -> bool:
    """Return whether the value of a variable of that name is a secret."""
    return _SECRET.search(name) is not None


def add_variable(section: Section, run: dict[str, Any], name: str, value: str) -> None:
    """Add a variable to the part `run` of a job file; of a secret, add only the name."""
    if is_secret_name(name) or holds_a_key(value.encode(), prose=True):
        run.setdefault("secrets", []).append(name)
        section.note(name, "kept", f"run.secrets, without its value: tpujob secret set {name}")
    else:
        run.setdefault("env", {})[name] = value
        section.note(name, "kept", "run.env")


def in_order(drafts: Sequence[JobDraft]) -> tuple[JobDraft, ...]:
    """Return the drafts without empty keys, each after its dependencies. Raise BadSpec for invalid ones and cycles."""
    by_name = {draft.name: replace(draft, spec=_clean_spec(draft.spec)) for draft in drafts}
    dependencies = {name: draft.spec.get("after", ()) for name, draft in by_name.items()}
    sorter = TopologicalSorter(dependencies)
    try:
        ordered = tuple(by_name[name] for name in sorter.static_order())
    except CycleError as error:
        names = error.args[1][::-1]
        text = f"{by_name[names[0]].place}: these wait for each other: {' -> '.join(names)}"
        raise BadSpec(text, hint="Remove one of these dependencies.") from None
    for draft in ordered:
        if holds_a_key(text_of(draft).encode(), prose=True):
            hint = "Remove it there, and name it in run.secrets of the job file."
            raise BadSpec(f"{draft.place}: {draft.name} has a key in its text", hint=hint)
        try:
            jobspec.load(text_of(draft), "job")
        except BadSpec as error:
            problem = re.sub(r"(?m)^job(:\d+)?: ", "", error.message)
            hint = "Correct it there, and import it again."
            text = f"{draft.place}: {draft.name} cannot be a job here: {problem}"
            raise BadSpec(text, hint=hint) from None
    return ordered


def _clean_spec(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the spec without empty keys, also in its sections."""
    sections = {key: cast("Any", value) for key, value in spec.items() if isinstance(value, dict)}
    cleaned = {key: _without_empty(section) for key, section in sections.items()}
    return _without_empty({**spec, **cleaned})


def _without_empty(part: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if value not in (None, "", [], {})}


def local_path(path: str, bases: Sequence[Path]) -> Path:
    """Return a path of a draft: below the first of the folders that has it, or else below the last."""
    target = Path(path).expanduser()
    return (next((b for b in bases if (b / target).exists()), bases[-1]) / target).resolve()


def write(drafts: Sequence[JobDraft], bases: Sequence[Path], folder: Path) -> list[Path]:
    """Write each draft into a folder and return the paths. Paths in the drafts are relative to `bases`, as in
    `local_path`. Raise BadRequest if a file cannot be written, and write nothing if one exists already."""
    paths = [folder / f"{draft.name}.yaml" for draft in drafts]
    if existing := [path for path in paths if path.exists()]:
        hint = "Name another folder with --to, or remove the file."
        raise BadRequest(f"{existing[0]} is there already; nothing was written", hint=hint)

    def moved(path: str) -> str:
        if "://" in path:
            return path
        return os.path.relpath(local_path(path, bases), folder.resolve())

    texts: list[str] = []
    for draft in drafts:
        spec = dict(draft.spec)
        if "code" in spec:
            spec["code"] = moved(spec["code"])
        if "data" in spec:
            spec["data"] = [{**entry, "from": moved(entry["from"])} for entry in spec["data"]]
        texts.append(text_of(replace(draft, spec=spec)))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        hint = "Name another folder with --to."
        raise BadRequest(f"cannot write {error.filename}: {error.strerror}", hint=hint) from None
    return paths


def text_of(draft: JobDraft) -> str:
    """Return the text of the job file."""
    body = yaml.dump(draft.spec, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return f"# Imported from {clean(draft.place)}\n{body}"


class _Dumper(yaml.SafeDumper):
    """Writes texts so that YAML 1.2 reads them back as texts; texts of several lines become blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if plain(text) != text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)  # pyright: ignore[reportUnknownMemberType]


_Dumper.add_representer(str, _text)
