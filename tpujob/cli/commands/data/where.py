"""`tpujob data where`: for each zone in which a job may run, where its data is, and what it costs to bring it there."""

from pathlib import Path
from typing import Annotated, Any

import typer

from tpujob.cli.backend import connect
from tpujob.cli.options import Json
from tpujob.cli.output import say_page
from tpujob.errors import BadRequest


def where(
    of: Annotated[
        str,
        typer.Argument(
            metavar="FILE|JOB|SRC", help="A job file, a job, or a source such as gs://data/c4."
        ),
    ],
    type: Annotated[
        str, typer.Option("--type", metavar="TYPE", help="With SRC: the TPUs that will read it.")
    ] = "",
    zones: Annotated[
        list[str] | None,
        typer.Option("--zone", metavar="ZONE", help="With SRC: such a zone; may be repeated."),
    ] = None,
    epochs: Annotated[
        int,
        typer.Option(metavar="N", min=1, help="How often the program reads all of it."),
    ] = 1,
    as_json: Json = False,
) -> int:
    """Show where a job's data is, and what bringing it there costs. Copies nothing."""
    from tpujob.cli.render.data.where import where_page, where_record

    api = connect()
    if "://" in of:
        spec = _of_source(of, type, zones or [])
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
    return 0


def _of_source(source: str, type: str, zones: list[str]) -> dict[str, Any]:
    """A job that would read that source."""
    if not type:
        raise BadRequest(
            "which TPUs will read it?", hint=f"tpujob data where {source} --type v5e-16"
        )
    tpu: dict[str, Any] = {"type": type, "zones": zones}
    return {"name": "where", "tpu": tpu, "run": {"command": "true"}, "data": source}
