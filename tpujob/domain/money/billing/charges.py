"""One row of Cloud Billing's export to BigQuery, as a record with whole numbers. Pure.

Which columns there are, and what they are called, is in `columns.py`. Older rows lack the newer ones.
"""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, NamedTuple, cast

from tpujob.domain.money.billing.columns import REPEATED

MICRO = 1_000_000
USD = "USD"
UNNAMED = "UNNAMED"  #: the type of credits from before 2020-09, which have none

#: what makes two rows different; prices and costs at other prices follow from these, and older rows lack them
_TEXTS = (
    "billing_account_id", "invoice_month", "cost_type", "service_id", "sku_id", "sku_description", "project_id",
    "location_location", "location_region", "location_zone", "currency", "usage_unit", "usage_pricing_unit",
    "resource_name", "resource_global_name", "adjustment_info_id", "adjustment_info_type", "adjustment_info_mode",
    "subscription_instance_id", "consumption_model_id", "transaction_type", "seller_name",
)  # fmt: skip
_NUMBERS = (
    "cost", "currency_conversion_rate", "usage_amount", "usage_amount_in_pricing_units", "price_tier_start_amount",
)  # fmt: skip
_TIMES = ("usage_start_time", "usage_end_time", "export_time")


class BadCharge(ValueError):
    """A row that cannot be read: which column, and what is wrong with it."""


class Charge(NamedTuple):
    """One row of the bill. A tuple, as an export has a million of them. Times are microseconds since the epoch."""

    start: int
    end: int
    exported: int
    service: str
    sku: str
    zone: str  #: empty: the SKU is regional or global
    region: str
    cost_type: str  #: regular, tax, adjustment, rounding_error
    currency: str
    rate: str  #: units of the currency to a US dollar, as the export says it
    cost: int  #: micro-units of the currency, negotiated discounts included, credits not
    credits: tuple[tuple[str, int], ...]  #: type, and micro-units, as a rule below 0
    usage: int | None  #: millionths of the pricing unit; None: not said
    unit: str  #: the pricing unit
    labels: Mapping[str, str]
    system_labels: Mapping[str, str]
    resource: str  #: the last part of the resource's name; empty: standard export, or not said
    invoice_month: str  #: `202608`


def charge(flat: Mapping[str, Any]) -> Charge:
    """What a row says. Raises BadCharge, naming the column."""
    get = flat.get
    currency = _text(flat, "currency")
    if not currency:
        raise BadCharge("there is no `currency`")
    return Charge(
        start=_time(flat, "usage_start_time"),
        end=_time(flat, "usage_end_time"),
        exported=_time(flat, "export_time"),
        service=_text(flat, "service_description") or _text(flat, "service_id"),
        sku=_text(flat, "sku_description") or _text(flat, "sku_id"),
        zone=_text(flat, "location_zone"),
        region=_text(flat, "location_region"),
        cost_type=_text(flat, "cost_type") or "regular",
        currency=currency,
        rate=_rate(currency, get("currency_conversion_rate")),
        cost=_micros("cost", get("cost")),
        credits=_credits(get("credits")),
        usage=_usage(get("usage_amount_in_pricing_units")),
        unit=_text(flat, "usage_pricing_unit"),
        labels=_labels("labels", get("labels")),
        system_labels=_labels("system_labels", get("system_labels")),
        resource=_last(_text(flat, "resource_name") or _text(flat, "resource_global_name")),
        invoice_month=_text(flat, "invoice_month"),
    )


def digest(flat: Mapping[str, Any]) -> bytes:
    """The same for two rows that are alike in every dimension of billing and were exported at the same time. Identical
    rows are legal: who drops duplicates has to count them. Raises BadCharge."""
    parts = [str(flat.get(name) or "") for name in _TEXTS]
    parts += [_plain(name, flat.get(name)) for name in _NUMBERS]
    parts += [str(_time(flat, name)) for name in _TIMES]
    parts += [_canonical(name, flat.get(name)) for name in REPEATED]
    return hashlib.blake2b("\x1f".join(parts).encode(), digest_size=16).digest()


def _plain(column: str, value: Any) -> str:
    try:
        return "" if value in (None, "") else str(Decimal(str(value)).normalize())
    except InvalidOperation:
        raise BadCharge(f"`{column}` is no number: {str(value)[:40]!r}") from None


def _canonical(name: str, value: Any) -> str:
    found = _listed(name, value)
    return "" if not found else json.dumps(sorted(json.dumps(one, sort_keys=True) for one in found))


# Values --------------------------------------------------------------------------------------------------------------

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_US = timedelta(microseconds=1)


def _text(flat: Mapping[str, Any], column: str) -> str:
    value = flat.get(column)
    return value if isinstance(value, str) else "" if value is None else str(value)


def _time(flat: Mapping[str, Any], column: str) -> int:
    value = flat.get(column)
    if value is None or value == "":
        raise BadCharge(f"there is no `{column}`")
    try:
        return _moment(str(value))
    except (ValueError, OverflowError):
        raise BadCharge(f"`{column}` is no time: {str(value)[:40]!r}") from None


@lru_cache(65_536)
def _moment(text: str) -> int:
    """As BigQuery writes times: `2026-08-01 00:00:00 UTC`, `2026-08-01T00:00:00Z`, or seconds since the epoch."""
    if text[4:5] != "-":
        return round(float(text) * MICRO)
    at = datetime.fromisoformat(text.removesuffix(" UTC"))
    return ((at if at.tzinfo else at.replace(tzinfo=UTC)) - _EPOCH) // _US


def _micros(column: str, value: Any) -> int:
    """In millionths, halves away from zero, as Google's own examples round each value before they add."""
    if value is None or value == "":
        raise BadCharge(f"there is no `{column}`")
    try:
        return int(Decimal(value).scaleb(6).to_integral_value(ROUND_HALF_UP))
    except (InvalidOperation, ValueError, TypeError, OverflowError):
        raise BadCharge(f"`{column}` is no number: {str(value)[:40]!r}") from None


def _usage(value: Any) -> int | None:
    return None if value is None or value == "" else _micros("usage.amount_in_pricing_units", value)


def _rate(currency: str, value: Any) -> str:
    if value is None or value == "":
        if currency == USD:
            return "1"
        raise BadCharge(f"the cost is in {currency}, and there is no `currency_conversion_rate`")
    text = str(value)
    if not _is_rate(text):
        raise BadCharge(f"`currency_conversion_rate` is no rate: {text[:40]!r}")
    return text


@lru_cache(1024)
def _is_rate(text: str) -> bool:
    try:
        found = Decimal(text)
    except InvalidOperation:
        return False
    return found.is_finite() and found > 0


def _credits(value: Any) -> tuple[tuple[str, int], ...]:
    if not value or value == "[]":
        return ()
    found = cast(list[dict[str, Any]], _listed("credits", value))
    try:
        return tuple(
            (_text(one, "type") or UNNAMED, _micros("credits.amount", one.get("amount")))
            for one in found
        )
    except AttributeError:
        raise BadCharge("`credits` is no list of credits") from None


_NONE: Mapping[str, str] = {}


def _labels(column: str, value: Any) -> Mapping[str, str]:
    if not value or value == "[]":
        return _NONE
    if isinstance(value, str):
        return _labels_of_text(column, value)
    return _pairs(column, _listed(column, value))


@lru_cache(8192)
def _labels_of_text(column: str, text: str) -> Mapping[str, str]:
    return _pairs(column, _listed(column, text))


def _pairs(column: str, found: Any) -> Mapping[str, str]:
    try:
        return {one["key"]: one.get("value") or "" for one in found}
    except (TypeError, KeyError, AttributeError):
        raise BadCharge(f"`{column}` is no list of keys and values") from None


def _listed(column: str, value: Any) -> list[Any]:
    """The list that a repeated column holds; an object of names and values counts as one."""
    if isinstance(value, str) and value:
        try:
            value = json.loads(value, parse_float=str)
        except ValueError:
            raise BadCharge(f"`{column}` is no JSON: {value[:40]!r}") from None
    if isinstance(value, dict):
        return [{"key": k, "value": v} for k, v in cast(dict[str, Any], value).items()]
    if isinstance(value, list):
        return cast(list[Any], value)
    if not value:
        return []
    raise BadCharge(f"`{column}` is no list")


def _last(name: str) -> str:
    return name.rpartition("/")[2]
