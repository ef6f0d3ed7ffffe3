"""Where data is, as a record and as a table. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tpujob.cli.render.table import Column, table
from tpujob.domain.text import amount_of_bytes, clean, many, usd

if TYPE_CHECKING:
    from tpujob.api import DataPlaceView, DataView, PlanView

_COLUMNS = (
    Column("Zone"),
    Column("Read from", floors=(44, 24)),
    Column("Missing", right=True),
    Column("Copy once", right=True),
    Column("Keep, a month", right=True),
    Column("Across regions", right=True),
)


def where_record(plan: PlanView, epochs: int) -> dict[str, Any]:
    """The JSON form: each data set with its places, and what reading it from elsewhere costs in that many epochs."""
    data = [
        {
            **one,
            "places": [
                {**place, "usd_across": round(place["usd_epoch"] * epochs, 6)}
                for place in one["places"]
            ],
        }
        for one in plan.get("data", ())
    ]
    return {"epochs": epochs, "data": data}


def where_page(record: Mapping[str, Any], columns: int, *, color: bool = False) -> str:
    """One table for each data set: a row for each zone."""
    epochs = record["epochs"]
    out: list[str] = []
    for one in record["data"]:
        rows = [_row(place, zone) for place in one["places"] for zone in place["zones"]]
        out += ["", _title(one), table(_COLUMNS, rows, columns, color=color)]
    each = many(epochs, "epoch")
    return "\n".join([*out[1:], f"Across regions: for {each}. List prices, in US dollars."])


def _title(one: DataView) -> str:
    amount = f"{many(one['objects'], 'object')}, {amount_of_bytes(one['bytes'])}"
    size = amount if one["counted"] else f"at least {amount}"
    return clean(f"{one['name']}: {one['base']} in {one['location']}, {size}")


def _row(place: Any, zone: str) -> tuple[str, ...]:
    local = not place["usd_epoch"]
    if not place["copied"]:
        across = "" if local else usd(place["usd_across"])
        where = "in place" if local else "in place, across regions"
        return zone, where, "", "", "", across
    return (
        zone,
        clean(place["path"]),
        _missing(place),
        usd(place["usd_copy"]),
        usd(place["usd_month"]),
        usd(place["usd_across"]),
    )


def _missing(place: DataPlaceView) -> str:
    return amount_of_bytes(place["missing_bytes"]) if place["missing"] else "nothing"


def data_words(one: DataView) -> list[str]:
    """For the page of a plan: a line for each region."""
    found: list[str] = []
    for place in one["places"]:
        if not place["copied"] and one["to_bring"]:
            said = f"is brought from {one['source']} first"
        elif not place["copied"]:
            said = "is read where it is"
            if place["usd_epoch"]:
                said += f", across regions: {usd(place['usd_epoch'])} an epoch"
        elif place["missing"]:
            said = f"{_missing(place)} are copied first, for {usd(place['usd_copy'])}"
        else:
            said = "is there already" if one["objects"] else "is copied first"
        found.append(clean(f"{one['name']} in {place['region']}: {said} ({place['path']})"))
    return found
