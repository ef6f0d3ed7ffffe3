"""Unfinished downloads, and what buckets keep, as a record and as lines. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from tpujob.data.incomplete_downloads import PartsFolder
from tpujob.data.objects import Upkeep
from tpujob.domain.text import amount_of_bytes, clean, many

_SHOWN = 20
_DAY = 86400


def record(
    folders: Sequence[PartsFolder], kept: Mapping[str, Upkeep | None], *, removed: bool
) -> dict[str, Any]:
    """`kept`: of each bucket that was named; None: not known."""
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
        lines.append("They are removed. What was copied stays.")
    elif folders:
        lines.append(
            "The next sync to the same folder removes them; so does: tpujob data gc --delete"
        )
    for one in shown["buckets"]:
        lines += _bucket(one)
    return "\n".join(lines)


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
