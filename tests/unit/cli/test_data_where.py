"""What `tpujob data where` prints of a plan."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from tpujob.api import DataPlaceView, DataView, PlanView
from tpujob.cli.commands.data.where import data_words, where_page, where_record
from tpujob.errors import BadSpec
from tpujob.submit import job_file

TIB = 2**40


def place(region: str, zone: str, **more: Any) -> DataPlaceView:
    usual: dict[str, Any] = {
        "region": region,
        "zones": [zone],
        "path": f"gs://lab-{region}/datasets/c4-0123456789",
        "copied": True,
        "missing": 8,
        "missing_bytes": TIB,
        "usd_copy": 20.48,
        "usd_epoch": 20.48,
        "usd_month": 20.48,
    }
    return cast(DataPlaceView, {**usual, **more})


def data(*places: DataPlaceView, **more: Any) -> DataView:
    usual: dict[str, Any] = {
        "name": "c4",
        "source": "gs://corpora/c4",
        "base": "gs://corpora/c4",
        "location": "us-central1",
        "to_bring": False,
        "objects": 8,
        "bytes": TIB,
        "counted": True,
        "places": list(places),
    }
    return cast(DataView, {**usual, **more})


IN_PLACE = {"copied": False, "missing": 0, "missing_bytes": 0, "usd_copy": 0.0, "usd_epoch": 0.0}
FOUND = data(
    place("us-central1", "us-central1-a", **IN_PLACE),
    place("us-east5", "us-east5-a", usd_month=None),
    place("europe-west4", "europe-west4-a", missing=0, missing_bytes=0, usd_copy=0.0),
    place("us-south1", "us-south1-a", **{**IN_PLACE, "usd_epoch": 20.48}),
)


def test_a_row_for_each_zone_says_where_and_for_how_much() -> None:
    page = where_page(where_record(cast(PlanView, {"data": [FOUND]}), 90), 200)
    lines = [" ".join(line.split()) for line in page.splitlines()]
    assert lines[0] == "c4: gs://corpora/c4 in us-central1, 8 objects, 1.0 TiB"
    assert lines[2:] == [
        "us-central1-a in place",
        "us-east5-a gs://lab-us-east5/datasets/c4-0123456789 1.0 TiB $20.48 price unknown $1,843.20",
        "europe-west4-a gs://lab-europe-west4/datasets/c4-0123456789 nothing $0.00 $20.48 $1,843.20",
        "us-south1-a in place, across regions $1,843.20",
        "Across regions: for 90 epochs. List prices, in US dollars.",
    ]


def test_what_was_not_counted_to_its_end_is_said_to_be_more() -> None:
    page = where_page(where_record(cast(PlanView, {"data": [data(counted=False)]}), 1), 200)
    assert "at least 8 objects, 1.0 TiB" in page


def test_a_plan_has_a_line_for_each_region() -> None:
    here, missing, there, across = data_words(FOUND)
    assert "c4 in us-central1: is read where it is" in here
    assert "1.0 TiB are copied first, for $20.48" in missing
    assert "is there already" in there
    assert "across regions: $20.48 an epoch" in across
    (brought,) = data_words(
        data(place("us-central1", "z", **IN_PLACE), to_bring=True, source="s3://corpora/c4")
    )
    assert "is brought from s3://corpora/c4 first" in brought


def test_a_folder_is_named_by_its_machine_and_its_path(tmp_path: Path) -> None:
    file, folder = tmp_path / "job.yaml", tmp_path / "data" / "c4"
    folder.mkdir(parents=True)

    def source(of: str) -> str:
        job = f"name: a\ntpu: {{type: v4-8}}\nrun: {{command: x}}\ndata: {{from: {of}, to: c4}}\n"
        file.write_text(job)
        return job_file.read(file, "", cross_region=False).data[0].source

    assert source("./data/c4").startswith("file://")
    assert source("./data/c4").endswith(str(folder.resolve()))
    assert source("gs://corpora/c4") == "gs://corpora/c4"
    with pytest.raises(BadSpec, match="data/nothing is not there"):
        source("./data/nothing")
