"""What differs between jobs whose curves are compared, and the short name that it gives to each. Pure."""

import json
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import NamedTuple, cast

from tpujob.domain.model import Job
from tpujob.domain.spec import dump
from tpujob.domain.text import within
from tpujob.protocol.limits import secret_variables
from tpujob.service.diff import flat
from tpujob.service.views import PUBLIC

MAX_KEYS = 12  #: that are shown of what differs
MAX_NAMED = 3  #: of these in a label
ROOM = 60  #: bytes of a value
#: parts of a spec whose keys are shown without them, as people know `lr` and not `run.args.lr`
_PARTS = ("run.args.", "run.env.", "tpu.")
#: keys of a spec that say nothing about a single run
_OF_GROUPS = ("array", "matrix", "exclude", "at_once", "notify", "after")


class NamedRuns(NamedTuple):
    keys: list[str]  #: what differs, the most telling first
    values: list[dict[str, str]]  #: of each job, by key; a key that it lacks is left out
    labels: list[str]  #: of each job; no two are alike


class _Fact(NamedTuple):
    kind: int  #: place among the kinds: parameters first
    value: str


def name_runs(jobs: Sequence[Job], private: Collection[str]) -> NamedRuns:
    """Return what differs between the jobs: parameters of a sweep, then options of the command, arguments, variables,
    commit, hardware, and the rest of the spec. `private`: ids of the jobs of which the caller sees everything; of the
    others only the public part of the spec counts."""
    facts = [_facts(job, private=job.id in private) for job in jobs]
    kinds: dict[str, int] = {}
    for key, fact in (item for of_job in facts for item in of_job.items()):
        kinds[key] = min(fact.kind, kinds.get(key, fact.kind))
    values = [{key: fact.value for key, fact in of_job.items()} for of_job in facts]
    differing = [key for key in kinds if len({of_job.get(key) for of_job in values}) > 1]
    differing.sort(key=kinds.__getitem__)
    keys = [key for key in differing if key not in ("name", "user")][:MAX_KEYS]
    shown = [{key: of_job[key] for key in keys if key in of_job} for of_job in values]
    return NamedRuns(keys, shown, _labels(jobs, values, differing))


def command_options(command: str) -> dict[str, str]:
    """Return the options of a command by name, such as `--lr 3e-4`, `--lr=3e-4` and `lr=3e-4`; under `command` its
    other words."""
    try:
        words = shlex.split(command)
    except ValueError:
        words = command.split()
    options: dict[str, str] = {}
    others: list[str] = []
    name = ""  #: of an option whose value may be the next word
    for word in words:
        left, equals, value = word.partition("=")
        if name and not word.startswith("--"):
            options[name], name = word, ""
        elif equals and left.lstrip("-+").replace(".", "_").replace("-", "_").isidentifier():
            options[left.lstrip("-+")], name = value, ""
        elif word.startswith("--") and word != "--":
            name = word.removeprefix("--")
            options[name] = "true"
        else:
            others.append(word)
            name = ""
    return {**options, "command": " ".join(others)}


def _facts(job: Job, *, private: bool) -> dict[str, _Fact]:
    """Return what a caller knows of a job, by short key. Of two facts with one key the more telling one counts."""
    facts: dict[str, _Fact] = {}
    for kind, key, value in _all_facts(job, private=private):
        facts.setdefault(key, _Fact(kind, within(value, ROOM)))
    return facts


def _all_facts(job: Job, *, private: bool) -> Iterator[tuple[int, str, str]]:
    """Yield the kind of each fact with its key and value, the most telling first."""
    spec = flat({key: value for key, value in dump(job.spec).items() if private or key in PUBLIC})
    command = spec.pop("run.command", None)
    if private:
        yield from ((0, key, value) for key, value in job.params.items())
        options = command_options(command) if isinstance(command, str) else {}
        yield from ((1, key, value) for key, value in options.items() if key != "command")
        code = job.bundles[-1].rpartition("/")[2][:10] if job.bundles else ""
        if job.code:
            code = job.code.commit[:10] + (", changed" if job.code.dirty else "")
        yield 4, "commit" if job.code else "code", code
        yield 6, "command", options.get("command", "")
    for key, value in spec.items():
        secret = key.startswith("run.env.") and secret_variables({key: ""})
        if key.partition(".")[0] in _OF_GROUPS or secret or value in (None, "", []):
            continue
        part = next((part for part in _PARTS if key.startswith(part)), "")
        kind = 2 + _PARTS.index(part) if part in _PARTS[:2] else 5 if part else 7
        kind = 8 if key == "name" else kind
        yield kind, key.removeprefix(part), _text(value)
    yield 9, "user", job.user


def _text(value: object) -> str:
    """Return a value of a spec as in a job file."""
    if isinstance(value, list):
        return ", ".join(_text(item) for item in cast("list[object]", value))
    return value if isinstance(value, str) else json.dumps(value)


def _labels(
    jobs: Sequence[Job], values: Sequence[Mapping[str, str]], differing: Sequence[str]
) -> list[str]:
    """Return the label of each job, of as few keys as tell the jobs apart; where they do not, with its id."""
    chosen: list[str] = []
    labels = [""] * len(jobs)
    for key in differing:
        if len(chosen) == MAX_NAMED or len({*labels}) == len(jobs):
            break
        longer = [_label(of_job, [*chosen, key]) for of_job in values]
        if len({*longer}) > len({*labels}):
            chosen, labels = [*chosen, key], longer
    alike = {label for label in labels if labels.count(label) > 1}
    return [
        f"{label} {job.id}".strip() if label in alike or not label else label
        for job, label in zip(jobs, labels, strict=True)
    ]


def _label(values: Mapping[str, str], keys: Sequence[str]) -> str:
    shown = ((key, values[key]) for key in keys if key in values)
    return " ".join(v if k in ("name", "user", "commit") else f"{k}={v}" for k, v in shown)
