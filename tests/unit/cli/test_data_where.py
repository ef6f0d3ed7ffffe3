"""The page of `tpujob data where`."""

from pathlib import Path
from typing import Any, cast

import pytest

from tests.support.golden import golden
from tpujob.api import DataPlaceView, DataView, PlanView
from tpujob.cli.commands.data.where import where_page, where_record
from tpujob.cli.render.answers import data_lines
from tpujob.errors import BadSpec
from tpujob.submit import job_file

TIB = 2**40


def place(region: str, zone: str, **fields: Any) -> DataPlaceView:
    usual: dict[str, Any] = {"region": region, "zones": [zone], "copied": True}
    usual |= {"path": f"gs://lab-{region}/datasets/c4-0123456789", "missing": 8}
    usual |= {"missing_bytes": TIB, "usd_copy": 20.48, "usd_epoch": 20.48, "usd_month": 20.48}
    return cast(DataPlaceView, {**usual, **fields})


def data(*places: DataPlaceView, **fields: Any) -> DataView:
    usual: dict[str, Any] = {"name": "c4", "source": "gs://corpora/c4", "base": "gs://corpora/c4"}
    usual |= {"location": "us-central1", "to_bring": False, "objects": 8, "bytes": TIB}
    return cast(DataView, {**usual, "counted": True, "places": [*places], **fields})


IN_PLACE = {"copied": False, "missing": 0, "missing_bytes": 0, "usd_copy": 0.0, "usd_epoch": 0.0}
FOUND = data(
    place("us-central1", "us-central1-a", **IN_PLACE),
    place("us-east5", "us-east5-a", usd_month=None),
    place("europe-west4", "europe-west4-a", missing=0, missing_bytes=0, usd_copy=0.0),
    place("us-south1", "us-south1-a", **{**IN_PLACE, "usd_epoch": 20.48}),
)


def test_the_page_and_the_lines_of_a_plan() -> None:
    brought = data(place("us-central1", "z", **IN_PLACE), to_bring=True, source="s3://corpora/c4")
    uncounted = data(counted=False)
    views = {"counted": FOUND, "not counted to its end": uncounted, "to be brought": brought}
    pages = {
        case: where_page(where_record(cast(PlanView, {"data": [view]}), 90), 120)
        for case, view in views.items()
    }
    golden("data-where", pages | {"plan": "\n".join(data_lines(FOUND) + data_lines(brought))})


def test_a_folder_is_named_by_its_machine_and_its_path(tmp_path: Path) -> None:
    file, folder = tmp_path / "job.yaml", tmp_path / "data" / "c4"
    folder.mkdir(parents=True)
    (folder / "a.bin").write_text("a")
    (tmp_path / "data" / "empty").mkdir()

    def source(of: str) -> str:
        job = f"name: a\ntpu: {{type: v4-8}}\nrun: {{command: x}}\ndata: {{from: {of}, to: c4}}\n"
        file.write_text(job)
        return job_file.read(file, "", cross_region=False).data[0].source

    assert source("./data/c4").startswith("file://")
    assert source("./data/c4").endswith(str(folder.resolve()))
    assert source("gs://corpora/c4") == "gs://corpora/c4"
    with pytest.raises(BadSpec, match="data/nothing is not there"):
        source("./data/nothing")
    with pytest.raises(BadSpec, match=r"data/c4/a.bin is a file; data is a folder"):
        source("./data/c4/a.bin")
    with pytest.raises(BadSpec, match=r"there is no file in .*data/empty"):
        source("./data/empty")
    with pytest.raises(BadSpec) as error:
        source("~/nothing")
    assert "`~` and variables are not replaced" in error.value.hint
