"""The columns of Cloud Billing's standard and detailed usage cost export to BigQuery. Pure.

The schema is documented and grows, so columns are taken by name and unknown ones are ignored. A name may be nested
(`{"sku": {"id": ...}}`), dotted (`sku.id`) or flattened (`sku_id`). Repeated columns are lists, or JSON text in CSV.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

REPEATED = ("labels", "system_labels", "tags", "project_labels", "credits")

#: without these a row says too little; of a CSV file, the repeated ones too
REQUIRED = ("cost", "currency", "usage_start_time", "usage_end_time", "export_time")
REQUIRED_OF_TABLES = (*REQUIRED, "sku_description", "service_description", "labels", "credits")

#: columns that exist only where rows were multiplied: one for each label or credit, each with the whole cost
UNNESTED = ("labels_key", "credits_amount", "credits_type", "system_labels_key", "tags_key")


#: the parts of nested columns that matter here, by their flattened names
_PARTS: Mapping[str, Mapping[str, str]] = {
    top: {part: f"{top}_{part}" for part in parts.split()}
    for top, parts in {
        "service": "id description",
        "sku": "id description",
        "project": "id labels",
        "location": "location region zone",
        "usage": "amount unit amount_in_pricing_units pricing_unit",
        "invoice": "month",
        "adjustment_info": "id type mode",
        "price": "tier_start_amount",
        "resource": "name global_name",
        "subscription": "instance_id",
        "consumption_model": "id",
    }.items()
}


def flatten(record: Mapping[str, Any]) -> dict[str, Any]:
    """The columns by their flattened names; repeated ones stay lists."""
    flat: dict[str, Any] = {}
    for key, value in record.items():
        parts = _PARTS.get(key) if isinstance(value, dict) else None
        if parts is None:
            flat[name(key)] = value
        else:
            for part, title in parts.items():
                if part in value:
                    flat[title] = value[part]
    return flat


@lru_cache(4096)
def name(title: str) -> str:
    """The flattened name of a column."""
    return title.strip().lower().replace(".", "_")
