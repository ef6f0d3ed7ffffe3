"""How the numbers of a program's steps went on one host, as a line of JSON in the body of its report (`report.py`). The
agent writes it; `domain/host/series.py` reads that of host 0.
"""

from __future__ import annotations

from typing import List, TypedDict, Union

#: of one bucket and one name: the value, or the least, the greatest and the last one; None: none was told
Cell = Union[float, List[float], None]

MAX_ROWS, MAX_NAMES = 240, 8  #: that are written
MAX_SERIES, MAX_SERIES_READ = 24 * 1024, 64 * 1024  #: bytes that are written, and that are read


class SeriesDocument(TypedDict):
    v: int  #: 1
    names: List[str]  #: as the program calls them; `loss` and `ms` are of its steps
    #: for each bucket of steps: the last step, seconds since the epoch by the host's clock, a cell for each name
    rows: List[List[Cell]]
