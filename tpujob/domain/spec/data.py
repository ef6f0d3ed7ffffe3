"""The part of a job file about the data that the program reads: `data`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, cast

from pydantic import AfterValidator, Field

from tpujob.domain.spec import fields as kinds
from tpujob.domain.spec.fields import Checked

#: the schemes of sources that the storage or the user's machine can read
SCHEMES = ("gs", "s3", "https", "file")

_NAME = r"[A-Za-z0-9]([-A-Za-z0-9._]{0,62}[A-Za-z0-9])?"
_NAMED = "1 to 64 letters, digits, - . and _, such as fineweb"


def name_of(source: str) -> str:
    """Return the last part of a source's path that can be a name; empty: there is none."""
    path = source.partition("://")[2] or source
    parts = [re.sub(r"[^-A-Za-z0-9._]+", "-", part)[:64] for part in path.split("/")]
    usable = [part for part in parts if re.fullmatch(_NAME, part)]
    return usable[-1] if usable else ""


def _source(value: Any) -> str:
    source = kinds.text(1024)(value)
    scheme, separator, rest = source.partition("://")
    if separator and scheme not in SCHEMES:
        schemes = ", ".join(f"{name}://" for name in SCHEMES)
        raise ValueError(f"must be a folder or begin with {schemes}, not {source[:60]!r}")
    if (separator and not rest.partition("/")[0]) or not source.strip("/"):
        raise ValueError(f"names no place: {source[:60]!r}")
    return source.rstrip("/")


def _entries(value: Any) -> Any:
    """Return the entries of a source or of a list of sources; each is text, or a mapping with a name."""
    expected = "a place such as gs://datasets/fineweb, or a list of them"
    return tuple(map(_entry, kinds.items(value, expected, str, Mapping)))


def _entry(item: Any) -> Any:
    if isinstance(item, str):
        return {"from": item, "to": name_of(item)}
    if isinstance(item, Mapping):
        entry = cast("Mapping[Any, Any]", item)
        if not entry.get("to") and isinstance(entry.get("from"), str):
            return {**entry, "to": name_of(entry["from"])}
        return entry
    return item


def variable_of(name: str) -> str:
    """Return the variable of the program that has the place of this one of several data sets."""
    return "TPUJOB_DATA_" + re.sub(r"[^A-Z0-9]", "_", name.upper())


def _check_names(entries: tuple[Data, ...]) -> tuple[Data, ...]:
    variables = [variable_of(entry.to) for entry in entries]
    if doubles := [name for name in variables if variables.count(name) > 1]:
        raise ValueError(f"two sources would be {doubles[0]}; give one of them another `to`")
    return entries


class Data(kinds.SpecPart):
    """Data that the program reads from a bucket in its own region, or from a folder of its host."""

    source: Annotated[str, Checked(_source)] = Field(
        alias="from",
        description="gs://BUCKET/PREFIX, s3://BUCKET/PREFIX, https://..., or a folder relative to this file.",
    )
    to: Annotated[str, kinds.matching(_NAME, _NAMED)] = Field(
        description="Name. Default: the last part of the path."
    )
    stage: Annotated[
        Literal["stream", "disk", "memory", "mount"], kinds.Word("way to stage data")
    ] = Field(
        "stream",
        description="stream: the program reads the bucket. disk, memory (/dev/shm): each host fetches it first. "
        "mount: a folder by gcsfuse.",
    )


_PLACE = {"type": "string", "description": "The source alone, as `from`."}
_ONE = Data.model_json_schema() | {"required": ["from"]}

_MANY = {"type": "array", "maxItems": kinds.MAX_ITEMS, "items": {"anyOf": [_PLACE, _ONE]}}
Datasets = Annotated[
    tuple[Data, ...],
    Checked(_entries, {"anyOf": [_PLACE, _ONE, _MANY]}),
    AfterValidator(_check_names),
]
