"""What ended copies have left behind, as a record and as lines. Pure."""

from collections.abc import Mapping
from typing import Any

from tpujob.data.leftovers import Leftovers
from tpujob.data.objects import Upkeep
from tpujob.domain.text import amount_of_bytes, clean, many, span

_SHOWN = 20
_DAY = 86400


def record(
    found: Leftovers, kept: Mapping[str, Upkeep | None], now: float, *, removed: bool
) -> dict[str, Any]:
    """`kept`: of each bucket that was named; None: not known."""
    return {
        "removed": removed,
        "uploads": [
            {"target": one.target, "age_s": round(max(0.0, now - one.begun)), "bytes": one.size}
            for one in found.uploads
        ],
        "folders": [
            {"path": one.path, "files": one.files, "bytes": one.size} for one in found.folders
        ],
        "tokens": found.tokens,
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
    uploads, folders = shown["uploads"], shown["folders"]
    lines = [f"Uploads that were begun and not ended: {len(uploads):,}"]
    lines += [
        f"  {clean(one['target'])}: begun {span(one['age_s'])} ago" for one in uploads[:_SHOWN]
    ]
    lines += _more(uploads)
    lines.append(f"Folders with unfinished files: {len(folders):,}")
    for one in folders[:_SHOWN]:
        size = f"{many(one['files'], 'file')}, {amount_of_bytes(one['bytes'])}"
        lines.append(f"  {clean(one['path'])}: {size}")
    lines += _more(folders)
    lines += [_what_next(shown)] if uploads or folders or shown["tokens"] else []
    for one in shown["buckets"]:
        lines += _bucket(one)
    return "\n".join(lines)


def _what_next(shown: Mapping[str, Any]) -> str:
    if shown["removed"]:
        return "All of it is removed. What was copied stays."
    return "The command that left them goes on with them. To remove them, for $0: tpujob data gc --delete"


def _more(found: list[Any]) -> list[str]:
    return [f"  and {len(found) - _SHOWN:,} more: --json"] if len(found) > _SHOWN else []


def _bucket(one: Mapping[str, Any]) -> list[str]:
    name = f"gs://{one['bucket']}"
    if not one["known"]:
        return [f"{name}: this account may not read its settings (storage.buckets.get)"]
    soft = (
        f"kept for {many(round(one['soft_delete_s'] / _DAY), 'day')} (soft delete) and billed as if it were there"
        if one["soft_delete_s"]
        else "gone at once (no soft delete)"
    )
    parts = (
        f"ended after {many(one['parts_days'], 'day')}"
        if one["parts_days"] is not None
        else f"kept for ever, and billed; a rule ends them: tpujob data gc --rule 7 {name}"
    )
    return [
        name,
        f"  deleted, overwritten   {soft}",
        f"  uploads in parts       {parts}",
    ]
