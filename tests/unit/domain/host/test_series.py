"""Curves are taken from a body that the key of the attempt has signed, and from no other; whatever it says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpujob.domain.host.series import SignedCurves, read_curves
from tpujob.protocol import signing
from tpujob.protocol.report import MAX_SERIES_READ, sign_report

KEY = "5e" * 32
LINE = b'{"names": ["loss"], "rows": [[1, 2.0, 0.5]]}'


def body(seq: int, series: bytes = LINE) -> bytes:
    return sign_report({"seq": seq, "phase": "running"}, KEY, b'{"lines": []}', series)[1]


def test_the_number_of_the_report_is_signed_with_the_curves() -> None:
    assert read_curves(body(3), KEY) == SignedCurves(3, LINE)
    assert read_curves(body(3, b""), KEY) == SignedCurves(3, b"")


def test_more_than_an_agent_writes_is_not_taken() -> None:
    assert read_curves(body(3, b"1" * (MAX_SERIES_READ + 1)), KEY) == SignedCurves(3, b"")


@pytest.mark.parametrize("wrong", [b"", LINE, b"\n" + LINE, b"0" * 64 + b"\n{}\n" + LINE])
def test_what_is_not_signed_counts_for_nothing(wrong: bytes) -> None:
    assert read_curves(wrong, KEY) is None
    assert read_curves(body(3), "5f" * 32) is None
    assert read_curves(body(3).replace(b"0.5", b"0.1"), KEY) is None


@given(st.binary(max_size=200))
def test_no_bytes_make_the_reader_fail(rest: bytes) -> None:
    read_curves(rest + b"\n" + signing.sign(KEY, "report body", rest).encode(), KEY)
