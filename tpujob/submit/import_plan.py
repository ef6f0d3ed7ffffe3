"""What an import makes: job files in the order in which they can be created, and what became of every key.

The text of a job file is checked here as `tpujob create` checks it, before any is written.
"""

import hashlib
import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any, cast

import yaml

from tpujob.domain.spec import jobspec
from tpujob.domain.spec.yaml import plain
from tpujob.domain.text import clean
from tpujob.errors import BadRequest, BadSpec
from tpujob.submit.import_keys import KeyNote, Section
from tpujob.submit.secrets_scan import holds_a_key

#: names of variables whose values are secrets
_SECRET = re.compile(r"(KEY|TOKEN|PASSWORD|PASSWD|CREDENTIALS?)$|SECRET|ACCESS_KEY", re.I)


@dataclass(frozen=True, slots=True)
class JobDraft:
    """One job file that is not written yet."""

    spec: dict[str, Any]  #: in the form of a job file
    place: str  #: the file and line that it came from

    @property
    def name(self) -> str:
        return self.spec["name"]


@dataclass(frozen=True, slots=True)
class ImportPlan:
    jobs: tuple[JobDraft, ...]  #: each after the jobs that it waits for
    notes: tuple[KeyNote, ...]
    done: tuple[str, ...] = ()  #: what is left out, as it has run


def job_name(text: str, taken: Collection[str]) -> str:
    """A name that a job can have and that is not taken: the text, or what is nearest to it."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-") or "job"
    name = name if name[0].isalpha() else f"job-{name}"
    mark = hashlib.sha256(f"{text} {len(taken) if name in taken else ''}".encode()).hexdigest()[:6]
    return f"{name[:33].rstrip('-')}-{mark}" if len(name) > 40 or name in taken else name


def add_variable(section: Section, run: dict[str, Any], name: str, value: str) -> None:
    """Add a variable to the part `run` of a job file: of a secret its name alone."""
    if _SECRET.search(name) or holds_a_key(value.encode(), prose=True):
        run.setdefault("secrets", []).append(name)
        section.note(name, "kept", f"run.secrets, without its value: tpujob secret set {name}")
    else:
        run.setdefault("env", {})[name] = value
        section.note(name, "kept", "run.env")


def in_order(drafts: Sequence[JobDraft]) -> tuple[JobDraft, ...]:
    """The drafts without empty keys, each after those that it waits for. Raises BadSpec for one that is no job file,
    with the place that it came from, and when some wait for each other."""
    parts = {
        one.name: {
            k: _filled(cast("Any", v)) if isinstance(v, dict) else v for k, v in one.spec.items()
        }
        for one in drafts
    }
    by_name = {one.name: replace(one, spec=_filled(parts[one.name])) for one in drafts}
    sorter = TopologicalSorter({name: one.spec.get("after", ()) for name, one in by_name.items()})
    try:
        ordered = tuple(by_name[name] for name in sorter.static_order())
    except CycleError as error:
        names = error.args[1][::-1]
        text = f"{by_name[names[0]].place}: these wait for each other: {' -> '.join(names)}"
        raise BadSpec(text, hint="Remove one of these dependencies.") from None
    for one in ordered:
        if holds_a_key(text_of(one).encode(), prose=True):
            hint = "Remove it there, and name it in run.secrets of the job file."
            raise BadSpec(f"{one.place}: {one.name} has a key in its text", hint=hint)
        try:
            jobspec.load(text_of(one), "job")
        except BadSpec as error:
            what = re.sub(r"(?m)^job(:\d+)?: ", "", error.message)
            hint = "Correct it there, and import it again."
            text = f"{one.place}: {one.name} cannot be a job here: {what}"
            raise BadSpec(text, hint=hint) from None
    return ordered


def _filled(part: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in part.items() if value not in (None, "", [], {})}


def write(drafts: Sequence[JobDraft], source: Path, folder: Path) -> list[Path]:
    """Write each draft into a folder; returns the paths. Paths in the drafts are relative to `source`. Raises
    BadRequest when a file is there already; then none is written."""
    paths = [folder / f"{draft.name}.yaml" for draft in drafts]
    if there := [path for path in paths if path.exists()]:
        hint = "Name another folder with --to, or remove the file."
        raise BadRequest(f"{there[0]} is there already; nothing was written", hint=hint)
    folder.mkdir(parents=True, exist_ok=True)

    def moved(path: str) -> str:
        if "://" in path:
            return path
        given = Path(path).expanduser()
        above = source if (source / given).exists() else source.parent  # jobman's own folder
        return os.path.relpath((above / given).resolve(), folder.resolve())

    for path, draft in zip(paths, drafts, strict=True):
        spec = dict(draft.spec)
        if "code" in spec:
            spec["code"] = moved(spec["code"])
        if "data" in spec:
            spec["data"] = [{**one, "from": moved(one["from"])} for one in spec["data"]]
        path.write_text(text_of(replace(draft, spec=spec)), encoding="utf-8")
    return paths


def text_of(draft: JobDraft) -> str:
    """The job file."""
    body = yaml.dump(draft.spec, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=100)
    return f"# Imported from {clean(draft.place)}\n{body}"


class _Dumper(yaml.SafeDumper):
    """Writes texts so that YAML 1.2 reads them back as texts, and those of several lines as blocks."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else "'" if plain(text) != text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)  # pyright: ignore[reportUnknownMemberType]


_Dumper.add_representer(str, _text)
