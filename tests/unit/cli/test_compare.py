"""`tpujob cost estimate` with preemptions, and `--compare`: what they print, and what they ask of the backend."""

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.estimates import compare_view, estimate_view
from tests.support.scripted import ScriptedJobs
from tests.unit.cli.conftest import Tpujob
from tests.unit.cli.test_estimate import SPEC
from tests.unit.service.test_forecast_of_costs import earlier
from tpujob.cli.commands.cost.estimate import amount, compare_page
from tpujob.cli.commands.cost.estimate_page import estimate_page
from tpujob.cli.render.text import width
from tpujob.domain.model import Job
from tpujob.errors import BadRequest


def test_an_estimate_of_a_spot_job_shows_its_range(tpujob: Tpujob, job_file: Path) -> None:
    output = tpujob("cost", "estimate", str(job_file), "--hours", "3", "--preempt-every", "2h").out
    rows = {line.split("  ")[0]: line for line in output.splitlines()}
    assert rows["Nine of ten jobs"].split()[-2:] == ["above", "To"]
    assert "With preemptions: $2" in output
    assert rows["list value"].count("$") == 4
    assert rows["you pay"].split()[-1] == "$0.00", "the emulator bills nothing"
    assert "Preemptions are as stated" in output.replace("\n", " ")
    assert "until the end" not in rows
    assert "waits for a slice is not known: state it with `--wait`" in output.replace("\n", " ")


def page_of(jobs: Sequence[Job] = (), **options: float) -> str:
    """In lines that are long enough for each sentence."""
    return estimate_page(estimate_view(SPEC, {"hours": 1, **options}, jobs), 400, explained=True)  # type: ignore[typeddict-item]


def test_what_no_job_was_measured_for_is_called_a_guess() -> None:
    page = page_of()
    assert "Not measured yet: the time of the set-up and the release." in page
    for label in ("set-up      ", "release     "):
        assert f"  {label} half take less than (not known)" in page
    measured = page_of([earlier(1)])
    assert "guess" not in measured
    assert "  release      half take less than 60 s" in measured


def test_an_average_leaves_out_what_is_nothing() -> None:
    assert "On average" not in page_of(wait=0.001, preempt_every=1e12)
    page = page_of([earlier(1)], wait=600.0, preempt_every=1e12)
    average = "On average [0-9]+ min of waiting and [0-9]+ min of set-up, on top of 60 min"
    assert re.search(average, page)


def test_the_source_of_waits_is_shown_where_no_job_has_had_such_a_slice() -> None:
    new = "No job has had such a slice there yet"
    assert f"{new}. Preemptions are guessed from records of spot machines" in page_of()
    other = [earlier(1, type="v4-32")]
    kind = "those of other places and of spot machines of another kind."
    assert f"{new}; waits and preemptions are {kind}" in page_of(other)
    stated = page_of(other, preempt_every=1e4)
    assert f"{new}; waits are {kind} Preemptions are as stated." in stated
    assert new not in page_of([earlier(1)])


def test_types_are_compared(tpujob: Tpujob, api: ScriptedJobs, job_file: Path) -> None:
    words = ["cost", "estimate", str(job_file), "--compare", "--tokens", "10B", "--types"]
    words += ["v4-16,v5e-16", "--zones", "us-central2-b,us-central1-a"]
    words += ["--throughput", "v4-16=120k", "--throughput", "v5e-16=100k", "--wait", "10m"]
    output = tpujob(*words).out
    assert output.splitlines()[0] == "counting: 10B tokens"
    (request,) = api.named("compare")
    assert request["options"] == {
        "unit": "tokens",
        "amount": 1e10,
        "types": ["v4-16", "v5e-16"],
        "zones": ["us-central2-b", "us-central1-a"],
        "throughput": {"v4-16": 120e3, "v5e-16": 100e3},
    }
    assert request["inputs"]["wait"] == 600
    assert output.count("cheapest") + output.count("both") == 1
    assert tpujob(*words, "--json").json["ways"][0]["type"] in output


def test_a_type_that_no_job_has_used_has_a_note() -> None:
    page = compare_page(compare_view(SPEC, {}, {"amount": 1000.0}), 100)
    assert "unknown" in page.splitlines()[3]
    assert "no job ran it on v4-16: --throughput v4-16=N" in page


@pytest.mark.parametrize("columns", [80, 120])
def test_they_fit(columns: int) -> None:
    request = {"amount": 1e6, "throughput": {"v4-16": 100.0}, "types": ["v4-16", "v6e-8"]}
    page = compare_page(compare_view(SPEC, {}, request), columns)
    page += "\n" + estimate_page(estimate_view(SPEC, {"hours": 3}), columns, explained=True)
    assert max(map(width, page.splitlines())) <= columns


@pytest.mark.parametrize(
    "words",
    [
        "--compare --tokens many",
        "--compare --tokens 1B --samples 3",
        "--compare --tokens 1B --throughput v4-16",
        "--compare --tokens 1B --strict",
        "--wait soon",
        "--types v4-16",
        "--objects-read=-3",
    ],
)
def test_what_cannot_be_read_is_refused(tpujob: Tpujob, job_file: Path, words: str) -> None:
    tpujob("cost", "estimate", str(job_file), *words.split(), code=2)


def test_amounts_have_letters() -> None:
    texts = {"300": 300, "20k": 20e3, "1.5M": 1.5e6, "10B": 10e9, "1,000": 1000}
    assert {text: amount(text, "") for text in texts} == texts
    with pytest.raises(BadRequest):
        amount("1e9", "--tokens")
