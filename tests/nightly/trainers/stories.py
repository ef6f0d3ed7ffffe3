"""A file of `configs/` on the local stack with the real trainer: a job is preempted and resumes, one is left alone."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.local_stack import LocalStack
from tests.support.paths import ROOT
from tests.support.trainer_packages import environment

CONFIGS = ROOT / "configs"
PATIENCE = 1500.0  #: seconds; on a busy machine a trainer takes minutes to begin


def play(
    stack: LocalStack,
    name: str,
    arguments: str,
    ready: Callable[[Mapping[str, Any]], bool],
    programs: Path | None = None,
    **fields: Any,
) -> Mapping[str, Any]:
    """Play `configs/NAME.yaml` as a `job_file`, with the tolerance of its header; see `play_job`."""
    document = job_file(name, arguments, programs, **fields)
    return play_job(stack, document, ready, tolerance(name))


def job_file(
    name: str, arguments: str = "", programs: Path | None = None, **fields: Any
) -> dict[str, Any]:
    """Return `configs/NAME.yaml` with these arguments and fields, in the environment of `programs` or its requirements.
    Skip where the trainer cannot be installed."""
    document = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8"))
    if programs is None:
        kept = document.pop("env")
        programs = environment(name, CONFIGS / name / kept["uv"], kept["python"])
        document["code"] = str(CONFIGS / document["code"])
    document |= fields
    path = f"export PATH={programs}:$PATH\n"
    document["run"]["command"] = f"{path}{document['run']['command'].strip()} {arguments}".strip()
    if "setup" in document:
        document["setup"] = path + document["setup"]
    return document


def play_job(
    stack: LocalStack,
    document: Mapping[str, Any],
    ready: Callable[[Mapping[str, Any]], bool],
    tolerance: float,
) -> Mapping[str, Any]:
    """Run a job file as two jobs at once. Preempt one once it is `ready` and its page has the time left. Check that the
    losses on its page are those of the other, to within the relative `tolerance`. Return the view of its end."""
    whole, job = (submit(stack, document, suffix) for suffix in ("-whole", ""))
    running = stack.until(job, lambda view: view["left_s"] and ready(view), PATIENCE)
    assert running["found"] is False, "its steps come from events or from patterns"
    stack.run("emulator", "preempt", job, "--notice", "30s")
    view, other = (
        stack.until(id, lambda view: view["state"] in ("succeeded", "failed"), PATIENCE)
        for id in (job, whole)
    )
    ends = [[(a["outcome"], a["cause"]) for a in v["attempts"]] for v in (view, other)]
    succeeded = ("succeeded", None)
    shown = stack.run("show", job) + stack.run("show", whole)
    assert ends == [[("interrupted", "PREEMPTED"), succeeded], [succeeded]], shown

    assert view["attempts"][1]["first_step"] > 1
    expected, losses = stack.losses(whole, 1), stack.losses(job, 2)
    common = expected.keys() & losses.keys()  # of many steps a curve has a point for some
    assert max(common) == view["step"]
    pairs = {step: expected[step] for step in common}
    assert {step: losses[step] for step in common} == pytest.approx(pairs, rel=tolerance)
    return view


def submit(stack: LocalStack, document: Mapping[str, Any], suffix: str = "") -> str:
    """Submit a job file without pre-flight, its name with this end; return the job's id."""
    name = document["name"] + suffix
    file = stack.folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump({**document, "name": name, "preflight": False}))
    return stack.json("create", str(file))["id"]


def tolerance(name: str) -> float:
    """Return the relative difference of losses that the header of the file allows."""
    text = (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")
    sentence = r"the losses of a run without one, (?:in each printed digit|to within ([\d.e-]+))"
    (number,) = re.findall(sentence, text)
    return float(number or 0)
