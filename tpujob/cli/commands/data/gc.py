"""`tpujob data gc`: unfinished downloads that ended syncs left behind."""

from typing import Annotated

import typer

from tpujob.cli.commands.data.sync import settings
from tpujob.cli.options import Json
from tpujob.cli.output import say, say_json
from tpujob.errors import BadRequest, TpujobError


def gc(
    buckets: Annotated[
        list[str] | None,
        typer.Argument(metavar="[gs://BUCKET]...", help="Buckets whose settings to show."),
    ] = None,
    delete: Annotated[bool, typer.Option("--delete", help="Remove what is listed.")] = False,
    rule: Annotated[
        int | None,
        typer.Option(
            "--rule",
            metavar="DAYS",
            min=1,
            help="Add a lifecycle rule: abort incomplete multipart uploads after N days.",
        ),
    ] = None,
    as_json: Json = False,
) -> int:
    """List unfinished downloads of ended syncs. Removes nothing without --delete."""
    from tpujob.cli.render.data import incomplete_downloads as render
    from tpujob.data import incomplete_downloads
    from tpujob.wiring.data import copying

    names = [_bucket(text) for text in buckets or ()]
    if rule and not names:
        raise BadRequest("--rule needs a bucket", hint="name gs://BUCKET")
    with copying(settings()) as (objects, cache):
        folders = incomplete_downloads.find(cache)
        if delete:
            try:
                incomplete_downloads.remove(cache, folders)
            except OSError as error:
                raise TpujobError(f"cannot remove {error.filename}: {error.strerror}") from error
        kept = {name: objects.upkeep(name) for name in names}
        for name, upkeep in kept.items():
            if rule and not (upkeep and upkeep.parts_days is not None):
                objects.end_stale_parts(name, rule)
                kept[name] = objects.upkeep(name)
        record = render.record(folders, kept, removed=delete)
    say_json(record) if as_json else say(render.page(record))
    return 0


def _bucket(text: str) -> str:
    from tpujob.data import places

    place = places.parse(text)
    if not isinstance(place, places.Prefix) or place.prefix:
        raise BadRequest(f"{text!r} is not a bucket of Cloud Storage", hint="name gs://BUCKET")
    return place.bucket
