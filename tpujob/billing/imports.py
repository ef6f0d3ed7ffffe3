"""Several export files into one book: a row that an earlier file had already is dropped."""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tpujob.billing.files import rows
from tpujob.domain.money.billing import BadCharge, Charge, charge, digest
from tpujob.errors import BadRequest


@dataclass(frozen=True, slots=True)
class Imported:
    rows: int  #: that were used
    duplicates: int  #: that an earlier file had already


def read_into(paths: Sequence[Path], add: Callable[[Charge], None]) -> Imported:
    """Every row of the files, once. Two exports may overlap, and the same file may be given twice. Identical rows of
    one file are legal: of two files, as many count as the one has that has more of them. Memory is constant for one
    file; for several it holds a digest of each row. Raises BadRequest, naming file and line."""
    used = dropped = 0
    seen: defaultdict[bytes, int] | None = defaultdict(int) if len(paths) > 1 else None
    detailed: dict[bool, Path] = {}
    for path in paths:
        here: defaultdict[bytes, int] = defaultdict(int)
        resources = False
        for where, flat in rows(path):
            try:
                row = charge(flat)
                key = digest(flat) if seen is not None else b""
            except BadCharge as bad:
                raise BadRequest(f"{path}: {where}: {bad}") from None
            if seen is not None:
                resources = resources or bool(row.resource)
                here[key] += 1
                if here[key] <= seen[key]:
                    dropped += 1
                    continue
                seen[key] = here[key]
            used += 1
            add(row)
        detailed.setdefault(resources, path)
    if len(detailed) > 1:
        raise BadRequest(
            f"{detailed[True]} names resources and {detailed[False]} does not: a detailed and a standard export say "
            "the same costs twice",
            hint="Give only the detailed one.",
        )
    if not used:
        raise BadRequest(f"{paths[0]} has no rows", hint="Is the query's period the right one?")
    return Imported(used, dropped)
