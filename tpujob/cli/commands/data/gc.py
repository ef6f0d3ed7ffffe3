"""`tpujob data gc`: unfinished downloads that ended syncs left behind."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from tpujob.cli.commands.data.sync import settings
from tpujob.cli.options import Json, argument, flag, option
from tpujob.cli.output import say, say_json
from tpujob.data.objects import Upkeep
from tpujob.data.sync.checksum_cache import PartsFolder
from tpujob.domain.text import amount_of_bytes, clean, many
from tpujob.errors import BadRequest, TpujobError


def gc(
    buckets: Annotated[
        list[str] | None, argument("[gs://BUCKET]...", "Show settings of these buckets.")
    ] = None,
    delete: Annotated[bool, flag("Remove what is listed.", "--delete")] = False,
    rule: Annotated[
        int | None,
        option(
            "DAYS",
            "Add a lifecycle rule: abort incomplete multipart uploads after N days.",
            "--rule",
            min=1,
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """List unfinished downloads of ended syncs. Removes nothing without --delete."""
    from tpujob.data.sync import checksum_cache
    from tpujob.wiring.data import copying

    names = [_bucket(text) for text in buckets or ()]
    if rule and not names:
        raise BadRequest("--rule needs a bucket", hint="name gs://BUCKET")
    with copying(settings()) as (objects, cache):
        folders = checksum_cache.find_incomplete(cache)
        if delete:
            try:
                checksum_cache.remove_incomplete(cache, folders)
            except OSError as error:
                raise TpujobError(f"cannot remove {error.filename}: {error.strerror}") from error
        kept = {name: objects.upkeep(name) for name in names}
        for name, upkeep in kept.items():
            if rule and not (upkeep and upkeep.parts_days is not None):
                objects.end_stale_parts(name, rule)
                kept[name] = objects.upkeep(name)
        shown = record(folders, kept, removed=delete)
    say_json(shown) if as_json else say(page(shown))


def _bucket(text: str) -> str:
    from tpujob.data import locations

    place = locations.parse(text)
    if not isinstance(place, locations.Prefix) or place.prefix:
        raise BadRequest(f"{text!r} is not a bucket of Cloud Storage", hint="name gs://BUCKET")
    return place.bucket


# The page ------------------------------------------------------------------------------------------------------------


_SHOWN = 20
_DAY = 86400


def record(
    folders: Sequence[PartsFolder], kept: Mapping[str, Upkeep | None], *, removed: bool
) -> dict[str, Any]:
    """Return the JSON form. `kept`: the settings of each bucket that was named; None: unknown."""
    return {
        "removed": removed,
        "folders": [{"path": one.path, "files": one.files, "bytes": one.size} for one in folders],
        "buckets": [
            {
                "bucket": name,
                "soft_delete_s": upkeep.soft_delete_s if upkeep else None,
                "parts_days": upkeep.parts_days if upkeep else None,
                "known": upkeep is not None,
            }
            for name, upkeep in kept.items()
        ],
    }


def page(shown: Mapping[str, Any]) -> str:
    folders = shown["folders"]
    lines = [f"Folders with unfinished downloads: {len(folders):,}"]
    for one in folders[:_SHOWN]:
        size = f"{many(one['files'], 'file')}, {amount_of_bytes(one['bytes'])}"
        lines.append(f"  {clean(one['path'])}: {size}")
    if len(folders) > _SHOWN:
        lines.append(f"  and {len(folders) - _SHOWN:,} more: --json")
    if folders and shown["removed"]:
        lines.append("They are removed. Copied files are kept.")
    elif folders:
        lines.append(
            "The next sync to the same folder removes them; so does: tpujob data gc --delete"
        )
    for one in shown["buckets"]:
        lines += _bucket_line(one)
    return "\n".join(lines)


def _bucket_line(one: Mapping[str, Any]) -> list[str]:
    name = f"gs://{one['bucket']}"
    if not one["known"]:
        return [f"{name}: this account may not read its settings (storage.buckets.get)"]
    soft = (
        f"kept for {many(round(one['soft_delete_s'] / _DAY), 'day')} (soft delete) and billed meanwhile"
        if one["soft_delete_s"]
        else "gone at once (no soft delete)"
    )
    parts = (
        f"ended after {many(one['parts_days'], 'day')}"
        if one["parts_days"] is not None
        else f"kept for ever, and billed; a lifecycle rule aborts them: tpujob data gc --rule 7 {name}"
    )
    return [
        name,
        f"  deleted, overwritten   {soft}",
        f"  uploads in parts       {parts}",
    ]
