"""`data` of a job file."""

from typing import Any

import pytest

from tpujob.domain.spec.data import variable_of
from tpujob.domain.spec.jobspec import dump, load, parse

PLAIN = "name: a\ntpu: {type: v4-16}\nrun: {command: x}\n"


def entries(line: str) -> list[dict[str, Any]]:
    spec = load(f"{PLAIN}data: {line}\n", "job.yaml")
    assert parse(dump(spec)) == spec, "the JSON form loses nothing"
    return dump(spec)["data"]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("gs://datasets/fineweb", [("gs://datasets/fineweb", "fineweb")]),
        ("gs://datasets/fineweb/", [("gs://datasets/fineweb", "fineweb")]),
        ("gs://datasets", [("gs://datasets", "datasets")]),
        ("./data/c4", [("./data/c4", "c4")]),
        ("[s3://a/x, https://h/y.tar]", [("s3://a/x", "x"), ("https://h/y.tar", "y.tar")]),
        ("{from: gs://a/x y, to: z}", [("gs://a/x y", "z")]),
        ("[{from: gs://a/x y}]", [("gs://a/x y", "x-y")]),
        ("[]", []),
    ],
)
def test_one_line_is_enough_for_one_source(line: str, expected: list[tuple[str, str]]) -> None:
    assert [(entry["from"], entry["to"]) for entry in entries(line)] == expected


def test_data_is_streamed_unless_it_is_to_be_staged() -> None:
    both = entries("[gs://a/x, {from: gs://a/y, stage: memory}]")
    assert [entry["stage"] for entry in both] == ["stream", "memory"]


def test_a_name_becomes_a_variable() -> None:
    assert variable_of("fineweb-10bt") == "TPUJOB_DATA_FINEWEB_10BT"


def test_the_older_name_of_allow_cross_region_is_read_and_not_written() -> None:
    old = load(PLAIN.replace("v4-16}", "v4-16, cross_region: true}"), "job.yaml")
    new = load(PLAIN.replace("v4-16}", "v4-16, allow_cross_region: true}"), "job.yaml")
    assert old == new
    assert new.tpu.allow_cross_region
    assert "cross_region" not in dump(new)["tpu"]
