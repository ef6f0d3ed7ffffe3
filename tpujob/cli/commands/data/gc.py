"""`tpujob data gc`: what ended copies have left behind."""

import time
from typing import Annotated

import typer

from tpujob.cli.commands.data.sync import settings
from tpujob.cli.options import Json
from tpujob.cli.output import say, say_json
from tpujob.errors import BadRequest, TpujobError


def gc(
    buckets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[gs://BUCKET]...", help="Buckets whose upkeep to show."),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Remove what is listed.")] = False,
    rule: Annotated[
        int | None,
        typer.Option(
            "--rule",
            metavar="DAYS",
            min=1,
            help="Give the buckets a rule that ends uploads in parts, of any program, after so many days.",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """List what ended copies left behind: uploads and downloads. Removes nothing without --delete."""
    from tpujob.cli.render.data import leftovers as render
    from tpujob.data import leftovers
    from tpujob.wiring.data import copying, stages

    names = [_bucket(text) for text in buckets or ()]
    if rule and not names:
        raise BadRequest("--rule needs a bucket", hint="name gs://BUCKET")
    now = settings()
    with copying(now) as (objects, ledger):
        found = leftovers.find(ledger, stages(now))
        if delete:
            with ledger.unused():
                found = leftovers.find(ledger, stages(now))
                try:
                    leftovers.remove(ledger, objects, found)
                except OSError as error:
                    raise TpujobError(
                        f"cannot remove {error.filename}: {error.strerror}"
                    ) from error
        kept = {name: objects.upkeep(name) for name in names}
        for name, upkeep in kept.items():
            if rule and not (upkeep and upkeep.parts_days is not None):
                objects.end_stale_parts(name, rule)
                kept[name] = objects.upkeep(name)
        record = render.record(found, kept, time.time(), removed=delete)
    say_json(record) if as_json else say(render.page(record))
    return 0


def _bucket(text: str) -> str:
    from tpujob.data import places

    place = places.parse(text)
    if not isinstance(place, places.Prefix) or place.prefix:
        raise BadRequest(f"{text!r} is no bucket of Cloud Storage", hint="name gs://BUCKET")
    return place.bucket
