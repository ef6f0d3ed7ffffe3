"""`tpujob data where`: shows for each zone of a job where its data is, and the cost of copying the data there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tpujob.cli.backend import connect
from tpujob.cli.options import Json, argument, option
from tpujob.cli.output import say_page
from tpujob.cli.render import words
from tpujob.cli.render.table import Column, numbers, table
from tpujob.domain.text import amount_of_bytes, clean, many, usd
from tpujob.errors import BadRequest

if TYPE_CHECKING:
    from tpujob.api import PlanView


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
        tpu: dict[str, Any] = {"type": type, "zones": zones or []}
        spec: dict[str, Any] = {"name": "where", "tpu": tpu, "run": {"command": "true"}, "data": of}
    elif Path(of).suffix in (".yaml", ".yml") or Path(of).is_file():
        from tpujob.domain.spec import dump
        from tpujob.submit import job_file

        spec = dump(job_file.read(Path(of), "", cross_region=False))
    else:
        spec = api.get(of)["spec"]
    # a zone without a bucket is shown with its price, where a job would be refused
    tpu = {key: value for key, value in spec["tpu"].items() if key != "cross_region"}
    plan = api.plan({**spec, "tpu": {**tpu, "allow_cross_region": True}})
    if not spec.get("data"):
        raise BadRequest(f"{of} reads no data", hint="say what it reads: data: gs://BUCKET/PREFIX")
    say_page(where_record(plan, epochs), where_page, as_json)


# The page ------------------------------------------------------------------------------------------------------------


_COLUMNS = (
    Column("Zone"),
    Column("Read from", floors=(44, 24)),
    *numbers("Missing", "Copy once", "Keep, a month", "Across regions"),
)


def where_record(plan: PlanView, epochs: int) -> dict[str, Any]:
    """Return the JSON form: each data set with its places, and the price of reading it from elsewhere in `epochs`
    epochs."""
    data: list[dict[str, Any]] = []
    for source in plan.get("data", ()):
        places = [
            {**place, "usd_across": round(place["usd_epoch"] * epochs, 6)}
            for place in source["places"]
        ]
        data.append({**source, "places": places})
    return {"epochs": epochs, "data": data}


def where_page(record: Mapping[str, Any], columns: int, *, color: bool = False) -> str:
    """Return a table for each data set, with a row for each zone."""
    epochs = many(record["epochs"], "epoch")
    out: list[str] = []
    for source in record["data"]:
        rows = [_zone_cells(place, zone) for place in source["places"] for zone in place["zones"]]
        amount = f"{many(source['objects'], 'object')}, {amount_of_bytes(source['bytes'])}"
        size = amount if source["counted"] else f"at least {amount}"
        title = clean(f"{source['name']}: {source['base']} in {source['location']}, {size}")
        out += ["", title, table(_COLUMNS, rows, columns, color=color)]
    return "\n".join([*out[1:], f"Across regions: for {epochs}. List prices, in US dollars."])


def _zone_cells(place: Any, zone: str) -> tuple[str, ...]:
    local = not place["usd_epoch"]
    if not place["copied"]:
        across = "" if local else usd(place["usd_across"])
        where = "in place" if local else "in place, across regions"
        return zone, where, "", "", "", across
    return (
        zone,
        clean(place["path"]),
        words.missing_bytes(place),
        usd(place["usd_copy"]),
        usd(place["usd_month"]),
        usd(place["usd_across"]),
    )
