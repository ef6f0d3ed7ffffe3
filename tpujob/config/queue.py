"""The queue of a context: weights of shares, limits of owners, users of the high priority, handing on of slices.

A context's file has these settings below `queue`; the local stack reads them from `queue.yaml`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, cast

from pydantic import Field

from tpujob.config import files
from tpujob.config.settings import Settings
from tpujob.domain.capacity.settings import HandOnTo, OwnerLimits, QueueSettings
from tpujob.domain.hardware.pricing import find_pricing
from tpujob.domain.spec import fields as kinds
from tpujob.domain.spec import validate, yaml
from tpujob.domain.spec.fields import Checked
from tpujob.domain.spec.queue import SHARE
from tpujob.domain.spec.yaml import describe

_MAX_NUMBER = 1_000_000


def _weight(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise ValueError(f"must be a number, such as 2, not {describe(value)}")
    if not 0.001 <= value <= 1000:
        raise ValueError(f"must be from 0.001 to 1000, not {describe(value)}")
    return float(value)


def _share(value: Any) -> Any:
    """Return the fields of a share, from a weight or a mapping."""
    return cast("Any", value) if isinstance(value, Mapping) else {"weight": _weight(value)}


_Limit = Annotated[int | None, kinds.optional(kinds.count(_MAX_NUMBER))]
_members = kinds.names("a user", kinds.member)


class ShareSetting(kinds.SpecPart):
    """A share: its weight, and the users whose jobs may name it."""

    weight: Annotated[float, Checked(_weight)] = 1.0
    #: None: all users
    members: Annotated[tuple[str, ...] | None, kinds.optional(_members)] = None


class ChipsSetting(kinds.SpecPart):
    """Chips of one generation, zone and pricing."""

    type: Annotated[str, kinds.generation]
    zone: Annotated[str, kinds.zone]
    pricing: kinds.Pricing
    chips: Annotated[int, kinds.count(100_000)]


class LimitSetting(kinds.SpecPart):
    """The limits of each owner; None: no limit."""

    running: _Limit = None
    chips: _Limit = None
    queued: _Limit = None


class QueueSetting(kinds.SpecPart):
    """The queue of a context. By default: one share, no limits, and the high priority for all users."""

    shares: Annotated[
        dict[
            Annotated[str, kinds.matching(SHARE, "the name of a share")],
            Annotated[ShareSetting, Checked(_share)],
        ],
        kinds.mapping("shares to weights"),
    ] = Field(default={})
    limits: LimitSetting = LimitSetting()
    #: limits for single types of slices
    types: Annotated[
        dict[Annotated[str, kinds.accelerator], LimitSetting], kinds.mapping("types to limits")
    ] = Field(default={})
    #: users who may use the high priority; empty: all
    high: Annotated[tuple[str, ...], kinds.names("a user", kinds.member)] = ()
    #: quota of the project: reserves chips for a large job that waits, against small jobs
    quota: Annotated[tuple[ChipsSetting, ...], Field(strict=False)] = ()
    #: owner, lab: whose jobs may get the slice of a job that has ended; never: it is deleted
    hand_on: Annotated[HandOnTo, kinds.Word("way to hand slices on")] = "owner"
    #: seconds for which a slice that no job needs yet is kept, and billed to the job that has ended
    keep: Annotated[int, kinds.time_span("1h")] = 0
    #: whether a job of low priority stops when one of a higher priority waits for its chips alone
    give_way: bool = True


def queue_settings(setting: QueueSetting) -> QueueSettings:
    return QueueSettings(
        weights={name: share.weight for name, share in setting.shares.items()},
        members={
            name: frozenset(share.members)
            for name, share in setting.shares.items()
            if share.members is not None
        },
        limits=_limits(setting.limits),
        by_type={type: _limits(limits) for type, limits in setting.types.items()},
        high=frozenset(setting.high),
        quota={
            f"{entry.zone}/{entry.type}/{find_pricing(entry.pricing).quota}": entry.chips
            for entry in setting.quota
        },
        hand_on=setting.hand_on,
        keep=setting.keep if setting.hand_on != "never" else 0,
        give_way=setting.give_way,
    )


def _limits(limits: LimitSetting) -> OwnerLimits:
    return OwnerLimits(limits.running, limits.chips, limits.queued)


def of_local_stack(settings: Settings) -> QueueSettings:
    """Return the settings of the local stack, from `queue.yaml` in the state folder. Raise BadSpec that lists every
    mistake with its line."""
    path = settings.state / "queue.yaml"
    if not path.exists():
        return QueueSettings()
    document = yaml.load(files.read(path), str(path))
    return queue_settings(validate(QueueSetting, document.data, document, of="a queue"))
