"""A user's own prices: the file, its errors with line and row, and their use."""

from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from tests.support.records import NOW, job_in
from tpujob.config import context, prices, settings
from tpujob.domain.decide import decide
from tpujob.domain.events import SliceRequested
from tpujob.domain.hardware.prices import LIST
from tpujob.domain.model import State
from tpujob.domain.observations import Observation
from tpujob.domain.spec import yaml
from tpujob.errors import BadSpec

TODAY = date(2026, 11, 22)
GOOD = """\
source: contract 4711
as_of: 2026-11-20
prices:
  - {item: tpu v5e, where: us-central1, pricing: on-demand, usd: 1.1, unit: chip-hour}
  - {item: tpu v4, where: us-central2, pricing: spot, usd: 3.2, unit: 8-core-hour}
  - {item: tpu v4, where: us-central2, pricing: reserved, usd: 2.0286, unit: chip-hour}
  - {item: storage standard, where: mars-north1, usd: 0.0001, unit: GiB-hour, as_of: 2026-10-01}
  - {item: traffic, where: us-central1 -> asia, usd: 0.06, unit: GiB}
  - {item: traffic, where: europe -> ASIA, usd: 0.07, unit: GiB, note: as quoted}
  - {item: operations class A, usd: 0.01, unit: operation}
"""


def wrong(text: str) -> str:
    with pytest.raises(BadSpec) as error:
        prices.parse(text, "mine.yaml", TODAY)
    return error.value.message


def row(**changed: str) -> str:
    fields = {"item": "tpu v5e", "where": "us-central1", "pricing": "on-demand", "usd": "1.2"}
    fields |= {"unit": "chip-hour", "source": "a bill", "as_of": "2026-11-20", **changed}
    return ", ".join(f"{key}: {value}" for key, value in fields.items() if value)


def file(*rows: str) -> str:
    return "prices:\n" + "".join(f"  - {{{text}}}\n" for text in rows)


def test_rows_count_before_those_of_the_list_and_keep_how_they_were_given() -> None:
    own = prices.parse(GOOD, "mine.yaml", TODAY)
    assert own.warnings == ()
    merged = LIST.over(own.rows)
    assert merged.usd_per_hour("v5e-8", "us-central1-a", "on-demand") == 8.8
    assert merged.usd_per_hour("v4-8", "us-central2-b", "spot") == 3.2, "8 cores are 4 chips"
    assert merged.usd_per_hour("v4-8", "us-central2-b", "reserved") == 4 * 2.0286
    assert merged.usd_per_hour("v4-8", "us-central2-b", "on-demand") == 12.88, "of the shipped list"
    stored = merged.storage("mars-north1")
    assert stored is not None
    assert (stored.usd, stored.source.as_of) == (Decimal("0.073"), date(2026, 10, 1))
    assert stored.quoted == "$0.0001 for a GiB-hour"
    assert merged.traffic("europe-west4", "asia-east1").usd == Decimal("0.07")
    assert merged.class_a.of(1000) == Decimal("0.01")
    assert all(price.own for price in own.rows)


def test_four_of_four_impossible_rows_are_refused_by_name() -> None:
    errors = wrong(
        file(
            row(pricing="spot", usd="1.3"),
            row(where="us-east5", usd="0.84"),
            row(item="tpu v4", where="us-central2", usd="12.88"),
            row(where="us-west4", as_of=""),
        )
    ).splitlines()
    starts = (
        "mine.yaml:2: prices[0]: tpu v5e, us-central1, spot: spot costs $1.3, more than on demand ($1.2)",
        "mine.yaml:3: prices[1]: tpu v5e, us-east5, on-demand: $0.84 on demand is the rate of a 1-year",
        "mine.yaml:4: prices[2]: tpu v4, us-central2, on-demand: $12.88",
        "mine.yaml:5: prices[3].as_of: tpu v5e: as_of is missing",
    )
    assert all(map(str.startswith, errors, starts)), errors
    assert len(errors) == 4


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (row(source=""), "source is missing"),
        (row(usd="-1"), "must be above 0, not -1"),
        (row(usd="0"), "must be above 0, not 0"),
        (row(usd="cheap"), "must be an amount in US dollars, not the text 'cheap'"),
        (row(usd=".inf"), "must be an amount"),
        (row(usd="true"), "must be an amount in US dollars, not true"),
        (row(as_of="last week"), "must be a day such as 2026-11-20"),
        (row(as_of="2027-01-01"), "is dated 2027-01-01, which is in the future"),
        (row() + ", pricng: spot", "no such key; did you mean pricing?"),
        (row(item="tpu 5"), "is not an item with a price"),
        (row(item="'operation class A'", where="", pricing="", unit="operation"), "did you mean operations class A?"),
        (row(item="tpu v2", where="us-central1"), "did you mean tpu v2 device or tpu v2 pod?"),
        (row(unit="8-core-hour"), "unit must be chip-hour; not '8-core-hour'"),
        (row(unit=""), "unit: is missing, and required"),
        (row(where=""), "where is missing"),
        (row(pricing=""), "pricing '' is not possible; allowed: spot, on-demand"),
        (row(pricing="preemptible"), "pricing 'preemptible' is not possible"),
        (row(item="traffic", where="us-central1", pricing="", unit="GiB"), "where must be two places"),
        (row(item="boot disk", pricing="", unit="GiB-month"), "where goes with no price"),
        (row(item="operations class A", where="", pricing="", unit="1000"), "unit: must be text"),
        (row(source="'Commitment v1: TpuV5e for 1 Year'", usd="1.0"), "called a commitment by its own source"),
        (row(usd="700"), "$700 for a chip-hour, where the list has $1.2"),
        (row(item="tpu v6e", where="us-central2", usd="700"), "$700 for a chip-hour, where the list has $3.24"),
        (row(item="tpu v4", where="us-central2", pricing="spot", usd="3.686"),
         "more than on demand ($3.22): it is the price of 8 cores; write `unit: 8-core-hour`"),
        (f"{row()}}}\n  - {{{row()}", "is the second row for tpu v5e, us-central1, on-demand"),
    ],
)  # fmt: skip
def test_a_wrong_row_is_refused(text: str, error: str) -> None:
    message = wrong(file(text))
    assert "mine.yaml:" in message
    assert "prices[" in message
    assert error in message


@pytest.mark.parametrize(
    "text",
    [
        "",
        "prices: []\n",
        "rows: []\n",
        "- 1\n",
        "prices: [1]\n",
        "prices: []\n---\n",
        "#" * yaml.MAX_BYTES + "\n",
    ],
)
def test_an_error_of_a_price_file_speaks_of_no_job(text: str) -> None:
    message = wrong(text)
    assert message.startswith("mine.yaml:")
    assert "job" not in message


def test_a_doubtful_price_is_used_with_a_warning() -> None:
    doubtful = row(pricing="spot", usd="0.2", as_of="2026-10-17")
    newer = row(item="tpu v8e", as_of="2024-01-01")
    own = prices.parse(file(doubtful, newer), "mine.yaml", TODAY)
    assert own.warnings == (
        "mine.yaml:2: prices[0]: tpu v5e, us-central1, spot: "
        "is 36 days old; spot prices can change every month",
        "mine.yaml:3: prices[1]: tpu v8e, us-central1, on-demand: "
        "is of a generation that tpujob does not know",
    )
    assert len(own.rows) == 2


def test_a_context_names_its_file_and_a_slice_is_asked_for_at_its_prices(tmp_path: Path) -> None:
    now = settings.load(tmp_path, context="lab", env={})
    lab = context.make(
        {"name": "lab", "project": "my-lab-4711", "zones": ["us-central2-b"], "prices": "mine.yaml"}
    )
    context.write(now, lab)
    assert context.current(now).prices == "mine.yaml"
    with pytest.raises(BadSpec, match="no such file"):
        prices.in_force(now, lab, TODAY)
    (now.contexts / "mine.yaml").write_text(GOOD)
    site = context.site(lab, "ada-fs", prices.in_force(now, lab, TODAY))
    request = decide(job_in(State.QUEUED), Observation(prices=site.prices), NOW).event
    assert request is not None
    assert isinstance(request.payload, SliceRequested)
    assert request.payload.usd_per_hour == 6.4, "8 chips at a quarter of $3.20"
    assert prices.in_force(now, context.make({**lab.model_dump(), "prices": ""}), TODAY) is LIST
