"""One object for a slice: what goes in comes out, as far as the metadata has room, and else with the body."""

from __future__ import annotations

import json
import math
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpujob.protocol import ReportDocument, limits, signing
from tpujob.protocol.slice_report import (
    Word,
    completed,
    is_slice,
    pack,
    read_body,
    read_summary,
    series_of,
)

KEY, OTHER = "0a" * 32, "0b" * 32


def word(host: int, age: float = 0.0, evidence: bytes = b"", **said: Any) -> Word:
    known = {"v": 1, "job": "000042", "attempt": 2, "host": host, "seq": 1_795_000_000_000 + host}
    return Word(host, cast(ReportDocument, {**known, "phase": "running", **said}), age, evidence)


def healthy(hosts: int) -> list[Word]:
    """In the midst of its work, on machines with long names."""
    return [
        word(
            host, host % 7, physical=f"/block-{host:032x}/host-{host:032x}", step=1000 + host % 2,
            steps=5000, program_phase="train", idle=host % 11 + 0.5, looks=host % 11, loss=2.0 + host / 7,
            versions={"python": "3.11.9", "jax": "0.6.2"}, metrics={"mfu": 0.4 + host / 1000},
        )
        for host in range(hosts)
    ]  # fmt: skip


def there_and_back(words: list[Word]) -> list[Word]:
    metadata, body = pack(words, by=0, at=5.0, key=KEY)
    assert sum(len(k) + len(v) for k, v in metadata.items()) <= limits.MAX_METADATA
    summary, read = read_summary(metadata, KEY), read_body(body, KEY)
    assert summary is not None
    assert read is not None
    assert read.words == words
    return completed(summary, read) if summary.left else summary.words


@pytest.mark.parametrize("hosts", [1, 2, 4, 16, 64, 256])
def test_the_words_of_all_hosts_come_back(hosts: int) -> None:
    words = healthy(hosts)
    assert there_and_back(words) == words


def in_trouble(hosts: int, **odd_clock: int) -> list[Word]:
    """At different steps of set-up, silent for different times, and with clocks that are off by so much."""
    phases = ("fetching", "setup", "preflight", "clearing", "running", "exited")
    words: list[Word] = []
    for host, well in enumerate(healthy(hosts)):
        seq = 1_795_000_000_000 + host * 7919 % 5000 + odd_clock.get(f"host_{host}", 0)
        seq += odd_clock.get("each", 0) * (-1) ** host
        more: Any = {"seq": seq, "phase": phases[host * 31 % 6], "error": f"{host} " * 20}
        said = cast(ReportDocument, {**well.said, **more})
        words.append(Word(host, said, float(host * 7907 % 9000)))
    return words


@pytest.mark.parametrize("hosts", [256, 512, 1536])
@pytest.mark.parametrize(
    "clocks",
    [{}, {"host_7": -1_795_000_000_000}, {"host_7": -3_600_000}, {"each": 3_600_000}],
    ids=["right", "1970", "an hour behind", "an hour either way"],
)
def test_large_slices_in_trouble_are_told_whole(hosts: int, clocks: dict[str, int]) -> None:
    words = in_trouble(hosts, **clocks)
    assert there_and_back(words) == words


def test_one_clock_that_is_far_off_does_not_cost_the_summary_of_256_hosts() -> None:
    words = [w._replace(age=float(w.host * 7907 % 9000)) for w in healthy(256)]
    seq = {**words[7].said, "seq": 60_000}
    words[7] = words[7]._replace(said=cast(ReportDocument, seq))
    summary = read_summary(pack(words, by=0, at=5.0, key=KEY)[0], KEY)
    assert summary is not None
    assert [(w.said.get("seq"), w.age) for w in summary.words] == [
        (w.said.get("seq"), w.age) for w in words
    ]


def test_a_summary_without_hosts_changes_with_each_word() -> None:
    """A reader gets the body of each; phases and notices are counted, so that a list call hints at their changes."""

    def said(words: list[Word]) -> tuple[str, dict[str, Any]]:
        metadata, _ = pack(words, by=0, at=5.0, key=KEY)
        summary = read_summary(metadata, KEY)
        assert summary is not None
        assert summary.words == []
        return summary.left, json.loads(metadata["summary"])

    words = in_trouble(1536)
    left, text = said(words)
    assert text["phase"] == dict.fromkeys(
        ("fetching", "setup", "preflight", "clearing", "running", "exited"), 256
    )
    assert text["notice"] == {"": 1536}
    for other in (
        words[0]._replace(age=words[0].age + 1),
        words[0]._replace(said=cast(ReportDocument, {**words[0].said, "seq": 1})),
        words[0]._replace(said=cast(ReportDocument, {**words[0].said, "step": 1})),
    ):
        assert said([other, *words[1:]])[0] != left


def test_whatever_hosts_say_the_metadata_is_never_too_long() -> None:
    """A list of many names, phases that nobody knows, and no room."""
    words = [word(h, **{f"{n:040}": n for n in range(h, h + 9)}) for h in range(256)]
    assert there_and_back(words) == words
    words = [word(h, phase=f"phase {h} " * 9, error=str(h) * 200) for h in range(512)]
    assert there_and_back(words) == words
    metadata, _ = pack(words, by=0, at=5.0, key=KEY, most=400)
    assert sum(len(k) + len(v) for k, v in metadata.items()) <= 400


def test_evidence_beyond_what_a_reader_takes_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = json.dumps({"v": 1, "lines": ["x" * 80] * 90}).encode()
    words = [w._replace(evidence=lines) for w in in_trouble(1536)]
    body = pack(words, by=0, at=5.0, key=KEY)[1]
    assert len(body) < limits.MAX_BODY
    assert (found := read_body(body, KEY))
    assert found.words == words
    monkeypatch.setattr(limits, "MAX_BODY", 8_000_000)
    body = pack(words, by=0, at=5.0, key=KEY)[1]
    assert 7_900_000 < len(body) <= 8_000_000
    assert (found := read_body(body, KEY))
    assert [w.said for w in found.words] == [w.said for w in words]
    assert found.words[0].evidence == lines


def test_a_summary_of_the_form_before_is_read() -> None:
    text = (
        '{"at":5.0,"by":0,"columns":{"age":{"all":0,"but":{"1":7}},"attempt":{"all":2},'
        '"host":{"each":[0,1,2],"from":0},"job":{"all":"000042"},"phase":{"all":"running"},'
        '"seq":{"each":[3600000,3600001,0],"from":1794996400000},"step":{"each":[1,null,3]},"v":{"all":1}},'
        '"fields":["loss"],"left":"0123456789abcdef","n":3,"v":1}'
    )
    summary = read_summary({"summary": text, "mac": signing.sign(KEY, "slice", text)}, KEY)
    assert summary is not None
    assert summary.words == [
        word(0, step=1),
        word(1, 7.0),
        word(2, step=3, seq=1_794_996_400_000),
    ]
    assert (summary.left, summary.fields) == ("0123456789abcdef", ("loss",))


def test_a_small_slice_needs_no_body() -> None:
    metadata, _ = pack(healthy(4), by=0, at=None, key=KEY)
    summary = read_summary(metadata, KEY)
    assert summary is not None
    assert (summary.words, summary.left, summary.at) == (healthy(4), "", None)


def test_256_hosts_have_in_the_summary_what_decides() -> None:
    """Phases, steps, ages, idle times and exit codes: what is left to the body are names of machines and the like."""
    words = healthy(256)
    words[77] = word(77, phase="exited", exit_code=-9, notice="preempted")
    summary = read_summary(pack(words, by=3, at=5.0, key=KEY)[0], KEY)
    assert summary is not None
    assert summary.by == 3
    assert {"physical", "loss"} <= set(summary.fields)
    rare = set(summary.fields)
    wanted = [{k: v for k, v in w.said.items() if k not in rare} for w in words]
    assert [w.said for w in summary.words] == wanted
    assert [w.age for w in summary.words] == [w.age for w in words]


def test_what_is_left_to_the_body_has_the_same_hash_while_it_is_the_same() -> None:
    """A reader keeps it, and gets the body once."""
    before = [word(h, physical=f"{h:090}", step=1) for h in range(256)]
    after = [word(h, age=30, physical=f"{h:090}", step=2) for h in range(256)]
    summaries = [read_summary(pack(w, by=0, at=1.0, key=KEY)[0], KEY) for w in (before, after)]
    body = read_body(pack(before, by=0, at=1.0, key=KEY)[1], KEY)
    assert summaries[0]
    assert summaries[1]
    assert body
    assert summaries[0].left == summaries[1].left != ""
    assert completed(summaries[1], body) == after


FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "exit_code": st.none() | st.integers(-64, 255),
        "error": st.text(max_size=500),
        "idle": st.none() | st.floats(0, 1e6, allow_nan=False),
        "step": st.none() | st.integers(-(2**62), 2**62),
        "late": st.booleans(),
        "metrics": st.dictionaries(st.text(max_size=8), st.none() | st.floats(-9, 9), max_size=3),
        "physical": st.text(max_size=100),
    },
)


@settings(max_examples=60, deadline=None)
@given(st.lists(FIELDS, min_size=1, max_size=30))
def test_whatever_hosts_say_comes_back(said: list[dict[str, Any]]) -> None:
    words = [word(n, n, **fields) for n, fields in enumerate(said)]
    known = {k: v for w in words for k, v in w.said.items()}
    assert known
    wanted = [
        w._replace(said=cast(ReportDocument, {k: v for k, v in w.said.items() if v is not None}))
        for w in words
    ]
    metadata, body = pack(words, by=0, at=5.0, key=KEY)
    summary, read = read_summary(metadata, KEY), read_body(body, KEY)
    assert summary
    assert read
    assert read.words == wanted
    assert completed(summary, read) == wanted


def test_evidence_and_curves_are_in_the_body() -> None:
    lines = [json.dumps({"v": 1, "lines": [f"host {h}: Traceback"]}).encode() for h in (1, 2)]
    words = [word(0), word(1, evidence=lines[0]), word(2, evidence=lines[1])]
    body = pack(words, by=0, at=1.0, key=KEY, series=b'{"rows": []}')[1]
    read = read_body(body, KEY)
    assert read is not None
    assert [w.evidence for w in read.words] == [b"", *lines]
    assert (read.by, read.at) == (0, 1.0)
    assert series_of(body[:300]) == b'{"rows": []}'
    assert series_of(b'{"lines": []}\n{"rows": []}') == b'{"rows": []}', "of an older agent"
    assert series_of(b"") == series_of(b'{"lines": []}') == b""


def test_nobody_without_the_key_is_believed() -> None:
    metadata, body = pack([word(0)], by=0, at=1.0, key=KEY)
    assert is_slice(metadata)
    assert not is_slice({"report": "{}", "mac": ""})
    assert read_summary(metadata, OTHER) is None
    assert (
        read_summary({**metadata, "summary": metadata["summary"].replace("42", "43")}, KEY) is None
    )
    assert read_body(body, OTHER) is None
    assert read_body(body.replace(b"running", b"exited"), KEY) is None
    assert read_body(b"", KEY) is None


@pytest.mark.parametrize(
    "text",
    [
        "", "{}", "[]", "null", '{"n": 1, "columns": []}', "[" * 5000, '{"n": 1000000000000000}',
        '{"n": 1, "columns": {"age": {"all": 1%s}, "host": {"all": 0}}}' % ("0" * 400),
        '{"n": 1, "columns": {"age": {"all": 0, "but": {"7": 1}}, "host": {"all": 0}}}',
    ],
)  # fmt: skip
def test_a_summary_of_another_version_is_passed_over(text: str) -> None:
    assert read_summary({"summary": text, "mac": signing.sign(KEY, "slice", text)}, KEY) is None


@pytest.mark.parametrize("value", ["y", True, [], {}, math.nan, math.inf, -math.inf], ids=repr)
@pytest.mark.parametrize("field", ["by", "at", "host", "age", "left", "fields"])
def test_signed_nonsense_is_no_report(field: str, value: Any) -> None:
    """A program can read the key of its agent."""
    metadata, body = pack([word(0, 3.0)], by=0, at=1.0, key=KEY)
    said, lines = json.loads(metadata["summary"]), body.decode().split("\n")[1:]
    head, report = json.loads(lines[0]), json.loads(lines[2])
    if field in ("host", "age"):
        said["columns"][field], report[field] = {"all": value}, value
    elif field in ("left", "fields"):
        said[field] = 7 if value == "y" else [[value]]
    else:
        said[field] = head[field] = value
    text = json.dumps(said)
    assert read_summary({"summary": text, "mac": signing.sign(KEY, "slice", text)}, KEY) is None
    rest = "\n".join([json.dumps(head), "", json.dumps(report)]).encode()
    mac = signing.sign(KEY, "slice body", rest).encode()
    found = read_body(mac + b"\n" + rest, KEY)
    assert (found is None) is (field not in ("left", "fields")), "these are of a summary"


def test_an_age_below_zero_is_no_report() -> None:
    """The host would be fresh for as long."""
    metadata, _ = pack([word(0, 3.0)], by=0, at=1.0, key=KEY)
    text = metadata["summary"].replace('"age":{"all":3}', '"age":{"all":-1e9}')
    assert read_summary({"summary": text, "mac": signing.sign(KEY, "slice", text)}, KEY) is None
