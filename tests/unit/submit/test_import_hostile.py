"""Files for an import in which one value is of another kind: they are read, or refused with file and line."""

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml as pyyaml

from tests.unit.submit.jobman_files import FILES
from tests.unit.submit.test_import_published import SKYPILOT
from tests.unit.submit.test_import_skypilot import WHOLE
from tpujob.domain.spec import yaml
from tpujob.errors import BadSpec
from tpujob.submit.jobman import read_jobman
from tpujob.submit.skypilot import read_skypilot

VALUES: tuple[Any, ...] = (None, 5, True, "'", "...", [1], {"a": 1})


def try_each(text: str, read: Callable[[str], Any]) -> None:
    """Read the text with each value replaced by each of `VALUES`."""
    document = yaml.load(text, "f")
    for path in filter(None, document.lines):
        for value in VALUES:
            data = copy.deepcopy(document.data)
            part: Any = data
            for key in path[:-1]:
                part = part[key]
            part[path[-1]] = value
            message = error_message(lambda data=data: read(pyyaml.safe_dump(data, sort_keys=False)))
            assert re.match(r"$|f[\w.]*:\d+: |there is no task", message), (path, value, message)


def error_message(read: Callable[[], Any]) -> str:
    """Return the message of the error; empty if there is none."""
    try:
        read()
    except BadSpec as error:
        return error.message
    return ""


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_files_of_jobman(name: str) -> None:
    state = {"f_state.yaml" if name.endswith("state.yaml") else "f.yaml": ""}
    rest = {"f.yaml": FILES["q/tasks.yaml"]} if "state" in name else {}
    try_each(
        FILES[name], lambda text: read_jobman(rest | dict.fromkeys(state, text), while_running=True)
    )


@pytest.mark.parametrize("text", [WHOLE, SKYPILOT["tpu_node_mnist.yaml"][0]])
def test_a_file_of_skypilot(text: str) -> None:
    try_each(text, lambda text: read_skypilot(text, "f", {"TAG": "x"}))
