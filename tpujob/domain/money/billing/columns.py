"""The columns of Cloud Billing's standard and detailed usage cost export to BigQuery. Pure.

The schema is documented and grows, so columns are taken by name and unknown ones are ignored. A name may be nested
(`{"sku": {"id": ...}}`), dotted (`sku.id`) or flattened (`sku_id`). Repeated columns are lists, or JSON text in CSV.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, cast

REPEATED = ("labels", "system_labels", "tags", "project_labels", "credits")

#: without these a row says too little; of a CSV file, the repeated ones too
REQUIRED = ("cost", "currency", "usage_start_time", "usage_end_time", "export_time")
REQUIRED_OF_TABLES = (*REQUIRED, "sku_description", "service_description", "labels", "credits")

#: columns that exist only where rows were multiplied: one for each label or credit, each with the whole cost
UNNESTED = ("labels_key", "credits_amount", "credits_type", "system_labels_key", "tags_key")


def flatten(record: Mapping[str, Any]) -> dict[str, Any]:
    """The columns by their flattened names; repeated ones stay lists."""
    flat: dict[str, Any] = {}
    for key, value in record.items():
        title = name(key)
        if isinstance(value, dict) and title not in REPEATED:
            for below, part in cast(dict[str, Any], value).items():
                flat[f"{title}_{name(below)}"] = part
        else:
            flat[title] = value
    return flat


@lru_cache(4096)
def name(title: str) -> str:
    """The flattened name of a column."""
    return title.strip().lower().replace(".", "_")
