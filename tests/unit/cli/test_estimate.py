"""`tpujob cost estimate` and `tpujob cost prices`: what they print, what they ask of the backend, their exit codes."""

import re
import shlex
from datetime import date
from pathlib import Path

import pytest

from tests.support.estimates import estimate_view
from tests.support.golden import golden
from tests.support.paths import ROOT
from tests.support.scripted import ScriptedJobs
from tests.unit.cli.conftest import Tpujob
from tpujob.cli.commands.cost.estimate_page import estimate_page
from tpujob.cli.commands.cost.prices import NOTHING, matching, prices_page
from tpujob.cli.render.text import width
from tpujob.config import prices
from tpujob.domain.hardware.prices import LIST
from tpujob.domain.text import dollars

TPU = {"type": "v4-16", "zones": ["us-central2-b"]}
SPEC = {"name": "x", "tpu": TPU, "run": {"command": "true"}}


def test_an_estimate_has_lines_and_sum(tpujob: Tpujob, api: ScriptedJobs, job_file: Path) -> None:
    output = tpujob("cost", "estimate", str(job_file), "--hours", "3").out.splitlines()
    assert output[0] == "counting on spot v4-16: 2 hosts, 8 chips, us-central2-b"
    assert output[1] == "For 3 h, as stated by --hours."
    rows = {" ".join(line.split()[:2]): line.split()[-2:] for line in output[3:]}
    assert rows["slices v4-16,"] == ["$22.12", "$0.00"], "the emulator bills nothing"
    assert rows["machines boot"] == ["$0.03", "$0.00"]
    assert not {"machines host", "control plane"} & rows.keys(), "there is nothing to pay for"
    assert rows["total >$22.18"] == [">$22.18", "$0.00"]
    assert "  objects that the program writes: not stated: --objects-written" in output
    assert api.named("estimate")[-1]["inputs"] == {"hours": 3.0, "quiet": False}


def test_json_has_whole_micro_dollars_that_add_up(tpujob: Tpujob, job_file: Path) -> None:
    record = tpujob("cost", "estimate", str(job_file), "--hours", "3", "--json").json
    lines = record["lines"]
    assert sum(line["list_micros"] or 0 for line in lines) == record["list_micros"]
    assert lines[0]["price"]["usd"] == "0.9215"
    assert lines[0]["price"]["as_of"] == "2026-09-20"


def test_an_estimate_says_when_the_budget_ends_the_job() -> None:
    tpu = {"type": "v4-32", "pricing": "on-demand"}
    spec = {**SPEC, "tpu": tpu, "budget": {"usd": 10}}
    estimate = estimate_view(spec, {"hours": 1.0})
    # 10 $ less 210 s to give the slice back, at 51.52 $ an hour
    assert estimate.get("budget_hours") == pytest.approx(10 / 51.52 - 210 / 3600, abs=1e-6)
    ends = "the rest pays for 8 min of 60 min, then the job is ended."
    assert ends in " ".join(estimate_page(estimate, 100).split())
    assert "pays for 8 min, then the job is ended." in " ".join(
        estimate_page(estimate_view(spec), 100).split()
    )
    enough = estimate_view(spec, {"hours": 0.1})
    kept = "$3.01 of the budget of $10.00 are kept to save and to release the slice."
    assert kept in estimate_page(enough, 100)
    assert "budget_hours" not in estimate_view(SPEC, {"hours": 1.0})


def test_strict_tells_a_script_that_something_is_not_known(tpujob: Tpujob, job_file: Path) -> None:
    words = ["cost", "estimate", str(job_file), "--strict", "--hours", "1"]
    assert "Not known" in tpujob(*words, code=6).out
    rest = ("--stored-gib", "--stored-days", "--objects-written", "--objects-read")
    assert "Not known" not in tpujob(*words, *(f"{option}=0" for option in rest)).out


def test_a_dry_run_shows_the_estimate(tpujob: Tpujob, job_file: Path) -> None:
    output = tpujob("create", str(job_file), "--dry-run").out
    assert "For each hour: the run time is not stated: `time:` in the job file" in output
    plan = tpujob("create", str(job_file), "--dry-run", "--json").json
    assert plan["estimate"]["hours"] is None


def test_the_page() -> None:
    """A price that is not known is never a zero."""
    v6e = {**SPEC, "tpu": {"type": "v6e-8", "zones": ["us-central2-b"]}}
    reserved = {**SPEC, "tpu": {**SPEC["tpu"], "pricing": "reserved"}}
    options = {"hours": 3.0, "wait": 600.0, "preempt_every": 7200.0}
    cases = {"spot": SPEC, "without a price": v6e, "reserved": reserved}
    pages = {case: estimate_page(estimate_view(spec, options), 120) for case, spec in cases.items()}
    explained = estimate_page(estimate_view(SPEC, options), 120, explained=True)
    golden("estimate", pages | {"explained": explained})
    micros = estimate_view(SPEC, {"hours": 1.0})["list_micros"]
    rows = estimate_page(estimate_view({**SPEC, "array": 3}, {"hours": 1.0}), 120).splitlines()
    assert [dollars(3 * micros) in row for row in rows if row.startswith("3 jobs")] == [True]


@pytest.mark.parametrize("columns", [80, 120])
def test_they_fit(columns: int) -> None:
    page = estimate_page(estimate_view(SPEC, {"hours": 3}), columns, explained=True)
    page += "\n" + prices_page(matching(LIST, []), date(2026, 11, 22), columns)
    assert max(map(width, page.splitlines())) <= columns


# Prices --------------------------------------------------------------------------------------------------------------


def test_the_price_list_can_be_searched(tpujob: Tpujob) -> None:
    output = tpujob("cost", "prices", "v4", "spot").out.splitlines()
    assert output[1].split()[:5] == ["tpu", "v4", "us-central2", "spot", "0.9215"]
    assert output[-1].startswith("Spot prices here are up to ")
    assert (
        tpujob("cost", "prices", "v4", "on-demand", "--json").json[0]["quoted"]
        == "$12.88 for 8 cores an hour"
    )
    assert NOTHING in tpujob("cost", "prices", "moon").out


def test_a_price_file_can_be_checked(tpujob: Tpujob, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    row = "item: tpu v5e, where: us-central1, pricing: spot, unit: chip-hour, source: a bill"
    file.write_text(f"prices:\n  - {{{row}, usd: 0.3, as_of: 2026-01-01}}\n")
    result = tpujob("cost", "prices", "--lint", str(file))
    assert result.out == f"{file}: 1 price, 1 warning\n"
    assert "days old; spot prices can change every month" in result.err
    file.write_text(f"prices:\n  - {{{row}, usd: 1.3, as_of: 2026-11-20}}\n")
    assert (
        "more than on demand ($1.2)" in tpujob("cost", "prices", "--lint", str(file), code=65).err
    )


# docs/cost.md --------------------------------------------------------------------------------------------------------

PAGE = (ROOT / "docs" / "cost.md").read_text(encoding="utf-8")


def test_commands_print_what_pages_show(tpujob: Tpujob, monkeypatch: pytest.MonkeyPatch) -> None:
    """Forecasts are the same each time, so they can be shown."""
    monkeypatch.chdir(ROOT)
    blocks = re.findall(r"```console\n\$ tpujob (.*?)\n(.*?)```", PAGE, re.S)
    assert len(blocks) == 3
    for command, output in blocks:
        assert output.rstrip() in tpujob(*shlex.split(command)).out


def test_the_price_file_of_the_page_is_accepted(tpujob: Tpujob) -> None:
    [text] = re.findall(r"```yaml\n(source: .*?)```", PAGE, re.S)
    own = prices.parse(text, "mine.yaml", date(2026, 11, 22))
    assert (len(own.rows), own.warnings) == (4, ())
