"""`tpujob data where`: for each zone in which a job may run, where its data is, and what it costs to bring it there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tpujob.cli.backend import connect
from tpujob.cli.options import Json, argument, option
from tpujob.cli.output import say_page
from tpujob.cli.render.table import Column, table
from tpujob.domain.text import amount_of_bytes, clean, many, usd
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.api import DataPlaceView, DataView, PlanView


def where(
    of: Annotated[
        str, argument("FILE|JOB|SRC", "A job file, a job, or a source such as gs://data/c4.")
    ],
    type: Annotated[str, option("TYPE", "With SRC: TPU type.", "--type")] = "",
    zones: Annotated[
        list[str] | None, option("ZONE", "With SRC: zone; repeatable.", "--zone")
    ] = None,
    epochs: Annotated[int, option("N", "Passes over the data.", min=1)] = 1,
    as_json: Json = False,
) -> None:
    """Show where a job's data is, and what bringing it there costs. Copies nothing."""
    api = connect()
    if "://" in of:
        if not type:
            hint = f"tpujob data where {of} --type v5e-16"
            raise BadRequest("which TPUs will read it?", hint=hint)
        asked: dict[str, Any] = {"type": type, "zones": zones or []}
        spec: dict[str, Any] = {
            "name": "where",
            "tpu": asked,
            "run": {"command": "true"},
            "data": of,
        }
    elif Path(of).suffix in (".yaml", ".yml") or Path(of).is_file():
        from tpujob.domain.spec import dump
        from tpujob.submit import job_file

        spec = dump(job_file.read(Path(of), "", cross_region=False))
    else:
        spec = api.get(of)["spec"]
    # a zone without a bucket is shown with its price, where a job would be refused
    tpu = {k: v for k, v in spec["tpu"].items() if k != "cross_region"}
    plan = api.plan({**spec, "tpu": {**tpu, "allow_cross_region": True}})
    if not spec.get("data"):
        raise BadRequest(f"{of} reads no data", hint="say what it reads: data: gs://BUCKET/PREFIX")
    say_page(where_record(plan, epochs), where_page, as_json)


# The page ------------------------------------------------------------------------------------------------------------


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
        amount = f"{many(one['objects'], 'object')}, {amount_of_bytes(one['bytes'])}"
        size = amount if one["counted"] else f"at least {amount}"
        title = clean(f"{one['name']}: {one['base']} in {one['location']}, {size}")
        out += ["", title, table(_COLUMNS, rows, columns, color=color)]
    each = many(epochs, "epoch")
    return "\n".join([*out[1:], f"Across regions: for {each}. List prices, in US dollars."])


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
            text = f"is copied from {one['source']} first"
        elif not place["copied"]:
            text = "is read where it is"
            if place["usd_epoch"]:
                text += f", across regions: {usd(place['usd_epoch'])} an epoch"
        elif place["missing"]:
            text = f"{_missing(place)} are copied first, for {usd(place['usd_copy'])}"
        else:
            text = "is already there" if one["objects"] else "is copied first"
        found.append(clean(f"{one['name']} in {place['region']}: {text} ({place['path']})"))
    return found
