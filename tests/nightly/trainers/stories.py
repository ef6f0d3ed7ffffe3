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
    """Run `configs/NAME.yaml` with these arguments and fields, in the environment of `programs` or of its requirements.
    Preempt it once it is `ready` and its page has the time left. Check that the losses on the page are those of a job
    that is not preempted. Return the view of its end. Skip where the trainer cannot be installed."""
    whole, job = (
        submit(stack, name, arguments, suffix, programs, fields) for suffix in ("-whole", "")
    )
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
    assert {step: losses[step] for step in common} == pytest.approx(pairs, rel=tolerance(name))
    return view


def submit(
    stack: LocalStack,
    name: str,
    arguments: str,
    suffix: str,
    programs: Path | None,
    fields: Mapping[str, Any],
) -> str:
    document = yaml.safe_load((CONFIGS / f"{name}.yaml").read_text(encoding="utf-8"))
    if programs is None:
        kept = document.pop("env")
        programs = environment(name, CONFIGS / name / kept["uv"], kept["python"])
        document["code"] = str(CONFIGS / document["code"])
    document |= {"name": name + suffix, "preflight": False, **fields}
    path = f"export PATH={programs}:$PATH\n"
    document["run"]["command"] = f"{path}{document['run']['command'].strip()} {arguments}".strip()
    if "setup" in document:
        document["setup"] = path + document["setup"]
    file = stack.folder / f"{name}{suffix}.yaml"
    file.write_text(yaml.safe_dump(document))
    return stack.json("create", str(file))["id"]


def tolerance(name: str) -> float:
    """Return the relative difference of losses that the header of the file allows."""
    text = (CONFIGS / f"{name}.yaml").read_text(encoding="utf-8")
    (stated,) = re.findall(r"the losses of a run without one, to within ([\d.e-]+)", text)
    return float(stated)
