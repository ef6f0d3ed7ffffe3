"""Objects with the lines of many hosts, as agents of before wrote them."""

from __future__ import annotations

from collections.abc import Sequence

from tpujob.protocol.segment import AT, PIECES, SegmentFacts


def metadata_of_pieces(pieces: Sequence[tuple[int, SegmentFacts, int]]) -> dict[str, str]:
    """Of an object that holds these, in that order: host, facts, size in bytes."""
    began = min((facts.at for _, facts, _ in pieces), default=0.0)
    rows = [
        f"{host},{f.line},{f.lines},{size},{round((f.at - began) * 1000)},{f.open:d}"
        for host, f, size in pieces
    ]
    return {AT: f"{began:.3f}", PIECES: ";".join(rows)}
