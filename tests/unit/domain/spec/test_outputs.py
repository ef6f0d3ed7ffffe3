"""`outputs` of a job file: folders inside the program's own, each once."""

from typing import Any

import pytest

from tpujob.domain.spec.jobspec import parse

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
