"""Curves are taken from a body that the key of the attempt has signed, and from no other; whatever it says."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpujob.domain.host.series import Signed, read_signed
from tpujob.protocol import signing
from tpujob.protocol.series import MAX_SERIES_READ
from tpujob.protocol.slice_report import Word, pack

KEY = "5e" * 32
LINE = b'{"names": ["loss"], "rows": [[1, 2.0, 0.5]]}'


def body(*numbers: int, series: bytes = LINE, phase: str = "running") -> bytes:
    words = [Word(n, {"seq": seq, "phase": phase}) for n, seq in enumerate(numbers)]  # type: ignore[typeddict-item]
    return pack(words, by=0, at=7.0, key=KEY, series=series)[1]


def signed(*lines: object) -> bytes:
    rest = b"\n".join(json.dumps(one).encode() for one in lines)
    return signing.sign(KEY, "slice body", rest).encode() + b"\n" + rest


def test_the_age_of_curves_and_their_end_are_signed_with_them() -> None:
    assert read_signed(body(3, 5, 4), KEY) == Signed(5, 7.0, False, LINE)
    assert read_signed(body(3, phase="exited"), KEY) == Signed(3, 7.0, True, LINE)
    assert read_signed(body(3, series=b""), KEY) == Signed(3, 7.0, False, b"")


def test_more_than_an_agent_writes_is_not_taken() -> None:
    assert read_signed(body(3, series=b"1" * (MAX_SERIES_READ + 1)), KEY) == Signed(
        3, 7.0, False, b""
    )


@pytest.mark.parametrize("wrong", [b"", LINE, b"\n" + LINE, b"0" * 64 + b"\n{}\n" + LINE])
def test_what_is_not_signed_counts_for_nothing(wrong: bytes) -> None:
    assert read_signed(wrong, KEY) is None
    assert read_signed(body(3), "5f" * 32) is None
    assert read_signed(body(3).replace(b"0.5", b"0.1"), KEY) is None


ROW = {"host": 0, "age": 0, "seq": 1}


@pytest.mark.parametrize(
    "lines",
    [
        (7, "", ROW),
        ({"by": 0, "at": 0, "n": 1}, "", 7),
        ({"by": 0, "at": 0, "n": 1}, "", [1]),
        ({"by": 0, "at": 0, "n": 9}, "", ROW),
        ({"by": [], "at": "now", "n": 1}, "", {**ROW, "seq": "x", "phase": ["exited"]}),
    ],
)
def test_a_program_that_signs_nonsense_makes_no_reader_fail(lines: tuple[object, ...]) -> None:
    found = read_signed(signed(*lines), KEY)
    assert found is None or (found.number, found.at, found.last) in {
        (0, None, False),
        (1, 0, False),
    }


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_fail(rest: bytes) -> None:
    read_signed(signing.sign(KEY, "slice body", rest).encode() + b"\n" + rest, KEY)
