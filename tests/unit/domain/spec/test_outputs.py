"""`outputs` of a job file: folders inside the program's own, each once."""

from typing import Any

import pytest

from tpujob.domain.spec.jobspec import load, parse
from tpujob.errors import BadSpec

BASE: dict[str, Any] = {"name": "a", "tpu": {"type": "v4-8"}, "run": {"command": "true"}}


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("checkpoints", ("checkpoints",)),
        (["runs/last/", "résumés", "runs/last"], ("runs/last", "résumés")),
        ([], ()),
    ],
)
def test_one_folder_or_a_list(given: Any, kept: tuple[str, ...]) -> None:
    assert parse(BASE | {"outputs": given}).outputs == kept


@pytest.mark.parametrize(
    "given", ["/tmp/out", "~/out", "../out", "a/../b", ".", "", "a//b", "a\nb", 7, {"a": 1}]
)
def test_what_is_no_folder_inside_is_refused_with_its_line(given: Any) -> None:
    with pytest.raises(BadSpec, match="outputs"):
        parse(BASE | {"outputs": given})


def test_a_folder_inside_another_is_refused() -> None:
    text = "name: a\ntpu: {type: v4-8}\nrun: {command: 'true'}\noutputs: [runs, runs/last]\n"
    with pytest.raises(BadSpec, match=r"job.yaml:4: outputs: runs/last is inside runs"):
        load(text, "job.yaml")
