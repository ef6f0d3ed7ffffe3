"""Untrusted texts: job files, contexts, answers and reports of hosts, and output of programs."""

import json
from collections.abc import Callable
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from tests.nightly.fuzz import cases
from tests.nightly.fuzz.test_api import JSON
from tpujob.adapters.ssh import agent_calls
from tpujob.adapters.ssh.connection import Output
from tpujob.config import context
from tpujob.domain.host import reports
from tpujob.domain.spec import jobspec
from tpujob.domain.text import clean, one_line
from tpujob.errors import BadSpec, TpujobError

FILE = """name: digits
tpu: {type: v4-16, zones: [us-central2-b]}
run:
  command: python3 train.py
  env: {A: "1"}
"""
CONTEXT = """name: lab
project: my-lab-4711
zones: [europe-west4-a]
buckets: {europe-west4: gs://my-lab-europe}
"""
DEEP = "[" * 60_000
YAML = st.text(alphabet="abc:- {}[]&*!|>'\"#\n\t%@,?1.~é\0\u202e\ud800", max_size=60) | st.text(
    max_size=60
)


def changed(whole: str, at: int, length: int, by: str) -> str:
    start = at % (len(whole) + 1)
    return whole[:start] + by + whole[start + length :]


def refusal(kind: type[TpujobError], act: Callable[[], object]) -> str | None:
    """Return the message of the expected error; None: no error. Other errors are passed on."""
    try:
        act()
    except kind as error:
        return error.message
    return None


@cases(0.05)
@given(at=st.integers(0, 1000), length=st.integers(0, 20), by=YAML)
@example(at=0, length=0, by=DEEP)
@example(at=30, length=0, by=DEEP)
def test_a_job_file_is_read_or_refused_by_one_error(at: int, length: int, by: str) -> None:
    for text in (changed(FILE, at, length, by), by):
        message = refusal(BadSpec, lambda text=text: jobspec.load(text, "job.yaml"))
        assert message is None or message.startswith("job.yaml")


@cases(0.03)
@given(at=st.integers(0, 1000), length=st.integers(0, 20), by=YAML)
@example(at=0, length=0, by=DEEP)
def test_a_context_is_read_or_refused_by_one_error(at: int, length: int, by: str) -> None:
    for text in (changed(CONTEXT, at, length, by), by):
        assert refusal(TpujobError, lambda text=text: context.parse(text, "lab.yaml")) != ""


@cases(0.03)
@given(output=st.text(max_size=200) | JSON.map(json.dumps), code=st.integers(0, 255))
@example(output=DEEP, code=0)
@example(output='{"ok": ' + DEEP, code=0)
@example(output='{"ok": true, "a": ' + DEEP + "]" * 60_000 + "}", code=0)
def test_the_output_of_an_agent_is_an_answer_or_an_error(output: str, code: int) -> None:
    message = refusal(TpujobError, lambda: agent_calls._parse_answer(Output(code, output)))  # pyright: ignore[reportPrivateUsage]
    assert message is None or clean(message) == message


REPORT = {
    "v": 1,
    "job": "000042",
    "attempt": 1,
    "host": 0,
    "phase": "running",
    "exit_code": None,
    "step": 7,
}


@cases(0.02)
@given(
    document=st.dictionaries(
        st.sampled_from([*REPORT, "error", "metrics", "verdict", "cause"]), JSON
    )
)
def test_a_report_of_a_host_is_read_or_ignored(document: dict[str, Any]) -> None:
    for text in (json.dumps(document), json.dumps(REPORT | document), DEEP):
        reports.read_report(0, text)[1]


@cases(0.02)
@given(
    text=st.text(max_size=300) | st.binary(max_size=300).map(lambda b: b.decode(errors="replace"))
)
def test_printed_text_is_one_line_that_a_terminal_can_show(text: str) -> None:
    shown = clean(text)
    assert len(shown.splitlines()) <= 1
    assert not any(
        ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0x202A <= ord(c) <= 0x202E for c in shown
    )
    assert len(one_line(text, 50)) <= 50
    assert isinstance(reports.read_evidence(text.encode(errors="replace")), tuple)
