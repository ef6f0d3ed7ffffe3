"""`tpujob data gc`: lists and removes unfinished downloads of ended syncs."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

from tpujob.cli.commands.data.sync import storage_settings
from tpujob.cli.options import Json, argument, flag, option
from tpujob.cli.output import say, say_json
from tpujob.data.sync.checksum_cache import PartsFolder
from tpujob.domain.text import amount_of_bytes, clean, many
from tpujob.errors import BadRequest, TpujobError
from tpujob.ports import BucketFacts


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
    with copying(storage_settings()) as (objects, cache):
        folders = checksum_cache.find_incomplete(cache)
        if delete:
            try:
                checksum_cache.remove_incomplete(cache, folders)
            except OSError as error:
                raise TpujobError(f"cannot remove {error.filename}: {error.strerror}") from error
        facts = {name: objects.settings(name) for name in names}
        for name, bucket in facts.items():
            if rule and not (bucket and bucket.parts_days is not None):
                objects.end_stale_parts(name, rule)
                facts[name] = objects.settings(name)
        shown = record(folders, facts, removed=delete)
    say_json(shown) if as_json else say(page(shown))


def _bucket(text: str) -> str:
    from tpujob.data import locations

    place = locations.parse(text)
    if not isinstance(place, locations.Prefix) or place.prefix:
        raise BadRequest(f"{text!r} is not a bucket of Cloud Storage", hint="name gs://BUCKET")
    return place.bucket


# The page ------------------------------------------------------------------------------------------------------------


_SHOWN = 20  #: folders that are listed
_DAY = 86400


def record(
    folders: Sequence[PartsFolder], buckets: Mapping[str, BucketFacts | None], *, removed: bool
) -> dict[str, Any]:
    """Return the JSON form. `buckets`: the settings of each named bucket; None: unknown."""
    return {
        "removed": removed,
        "folders": [
            {"path": folder.path, "files": folder.files, "bytes": folder.size} for folder in folders
        ],
        "buckets": [
            {
                "bucket": name,
                "soft_delete_s": bucket.soft_delete_s if bucket else None,
                "parts_days": bucket.parts_days if bucket else None,
                "known": bucket is not None,
            }
            for name, bucket in buckets.items()
        ],
    }


def page(shown: Mapping[str, Any]) -> str:
    folders = shown["folders"]
    lines = [f"Folders with unfinished downloads: {len(folders):,}"]
    for folder in folders[:_SHOWN]:
        size = f"{many(folder['files'], 'file')}, {amount_of_bytes(folder['bytes'])}"
        lines.append(f"  {clean(folder['path'])}: {size}")
    if len(folders) > _SHOWN:
        lines.append(f"  and {len(folders) - _SHOWN:,} more: --json")
    if folders and shown["removed"]:
        lines.append("They are removed. Copied files are kept.")
    elif folders:
        lines.append(
            "The next sync to the same folder removes them; so does: tpujob data gc --delete"
        )
    for bucket in shown["buckets"]:
        lines += _bucket_lines(bucket)
    return "\n".join(lines)


def _bucket_lines(bucket: Mapping[str, Any]) -> list[str]:
    name = f"gs://{bucket['bucket']}"
    if not bucket["known"]:
        return [f"{name}: this account may not read its settings (storage.buckets.get)"]
    deleted = (
        f"kept for {many(round(bucket['soft_delete_s'] / _DAY), 'day')} (soft delete) and billed meanwhile"
        if bucket["soft_delete_s"]
        else "gone at once (no soft delete)"
    )
    uploads = (
        f"ended after {many(bucket['parts_days'], 'day')}"
        if bucket["parts_days"] is not None
        else f"kept for ever, and billed; a lifecycle rule aborts them: tpujob data gc --rule 7 {name}"
    )
    return [name, f"  deleted, overwritten   {deleted}", f"  uploads in parts       {uploads}"]
