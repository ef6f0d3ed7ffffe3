"""Contexts: the places where jobs run. A context is the local stack, a cloud project, or a deployed backend.

A context is one YAML file, `<state>/contexts/NAME.yaml`. `tpujob init` makes it, and users edit it freely.
`config/settings.py` chooses the current one; `wiring/world.py` makes a context's adapters.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import secrets
import string
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, model_validator

from tpujob.config import files
from tpujob.config.notifications import NotificationSettings
from tpujob.config.queue import ChipsSetting, QueueSetting
from tpujob.config.settings import CONTEXT_NAME, LOCAL, Settings, prepare
from tpujob.config.sign_in import Door, SignIn
from tpujob.domain import model
from tpujob.domain.capacity.site import Site
from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.hardware.prices import LIST, PriceList
from tpujob.domain.spec import Usd, validate, yaml
from tpujob.domain.spec import fields as kinds
from tpujob.errors import BadRequest, BadSpec, NotFound

if TYPE_CHECKING:
    from tpujob.domain.money.shared import SharedBudget

#: most characters of the word that marks a backend's slices; a slice's name has 63 in all
MAX_OWNER = 36
#: calls a minute of the Cloud TPU API that a context's backend makes at most, unless the file says otherwise. Google
#: publishes no figure for all calls together; similar APIs allow from 60 a minute and user, most 600.
CALLS_PER_MINUTE = 600
#: requests for slices among them: `tpu.googleapis.com/qps/create` was 91 a minute for a project (marin#6198, 2026-06).
#: That queued resources count there is inferred (live: create-rate)
CREATES_PER_MINUTE = 60

_PROJECT = r"([a-z][-a-z0-9.]{0,60}:)?[a-z][-a-z0-9]{4,28}[a-z0-9]"
_BUCKET = r"gs://[a-z0-9][-a-z0-9_.]{1,220}[a-z0-9]"
_SOCKET = r"unix:/[-A-Za-z0-9._~+@%/]{1,106}"
_URL = r"https://[A-Za-z0-9.\-\[\]:]+(/[-A-Za-z0-9._~/]*)?"
_RESOURCE = r"[-a-z0-9_.:/]{1,256}"
_LABEL = r"[a-z0-9_-]{0,63}"


_Region = Annotated[str, kinds.region]
_Resource = Annotated[str, kinds.or_empty(kinds.matching(_RESOURCE, "the name of a resource"))]
_account = kinds.matching(r"[-a-z0-9.]+@[-a-z0-9.]+", "the e-mail address of a service account")
_LabelText = Annotated[str, kinds.matching(_LABEL, "up to 63 of a-z, 0-9, _ and -")]


class PeriodBudget(kinds.SpecPart):
    """A budget in US dollars, for each month or in total."""

    usd: Usd
    per: Annotated[Literal["month"] | None, kinds.optional(kinds.one_of(("month",), "period"))] = (
        None
    )


class Budgets(kinds.SpecPart):
    """The budgets of all jobs of the context, and of single users."""

    project: PeriodBudget | None = None
    users: Annotated[
        dict[Annotated[str, kinds.member], PeriodBudget], kinds.by_member("users to budgets")
    ] = Field(default={})


class Context(kinds.SpecPart):
    """A place where jobs run. An empty field means the project's default, or none."""

    name: Annotated[
        str,
        kinds.matching(CONTEXT_NAME.pattern, "1 to 40 of a-z, 0-9 and -, beginning with a letter"),
    ]
    #: a backend that another user runs: its URL, or the socket of `tpujob serve` on this machine; empty: this machine
    #: runs the backend, which calls Google Cloud
    backend: Annotated[
        str, kinds.or_empty(kinds.matching(f"{_URL}|{_SOCKET}", "an https address, or unix:/PATH"))
    ] = ""
    #: uid of the process at the socket; processes of other users are not trusted
    backend_uid: Annotated[int | None, kinds.optional(kinds.count(2**32 - 2))] = None
    door: Door = "iam"  #: the door of a deployed backend
    sign_in: SignIn = SignIn()
    project: Annotated[
        str, kinds.or_empty(kinds.matching(_PROJECT, "a project's id, such as my-lab-4711"))
    ] = ""
    zones: kinds.Zones = ()  #: in order of preference
    #: the bucket of each region
    buckets: Annotated[
        dict[
            _Region, Annotated[str, kinds.matching(_BUCKET, "a bucket, such as gs://my-lab-europe")]
        ],
        kinds.mapping("regions to buckets"),
    ] = Field(default={})
    network: _Resource = ""
    subnetwork: _Resource = ""
    #: e-mail address of the service account that programs run as
    service_account: Annotated[str, kinds.or_empty(_account)] = ""
    #: service accounts of single users' programs, by the user's e-mail address
    service_accounts: Annotated[
        dict[Annotated[str, kinds.member], Annotated[str, _account]],
        kinds.by_member("users to service accounts"),
    ] = Field(default={})
    #: how hosts are reached: by their external address, by the internal one, or by the tunnel of IAP; `init` writes the
    #: one that `way_in` chooses
    ssh: Annotated[Literal["external", "internal", "iap"], kinds.Word("way to reach a host")] = (
        "external"
    )
    #: whether slices get external addresses; left out: where `ssh` needs them
    external_ips: bool | None = None
    #: whether hosts use Secure Boot; organizations may demand it (compute.requireShieldedVm)
    secure_boot: bool = False
    #: network tags of the hosts, for firewall rules
    tags: Annotated[
        tuple[_LabelText, ...], kinds.names("a tag", kinds.matching(_LABEL, "a network tag"))
    ] = ()
    #: labels of the slices, for the bill
    labels: Annotated[dict[_LabelText, _LabelText], kinds.mapping("names to values")] = Field(
        default={}
    )
    reservation: _Resource = ""  #: for jobs with `pricing: reserved`
    store: Annotated[Literal["sqlite", "firestore"], kinds.Word("place for the jobs")] = "sqlite"
    database: Annotated[
        str, kinds.matching(r"\(default\)|[a-z][-a-z0-9]{2,61}[a-z0-9]", "a database of Firestore")
    ] = "(default)"
    #: the region that secrets are kept in, where an organization allows no other; empty: Google chooses
    secret_region: Annotated[str, kinds.or_empty(kinds.region)] = ""
    #: chips that a programme such as the TPU Research Cloud pays for
    grants: Annotated[tuple[ChipsSetting, ...], Field(strict=False)] = ()
    #: a file of the user's own prices, by its path or by its name beside this file
    prices: Annotated[str, kinds.or_empty(kinds.text(1024))] = ""
    budgets: Budgets = Budgets()
    queue: QueueSetting = QueueSetting()
    notifications: NotificationSettings = NotificationSettings()
    calls_per_minute: Annotated[int, kinds.count(60_000)] = CALLS_PER_MINUTE
    #: contexts of one project share its rate: divide it among them
    creates_per_minute: Annotated[int, kinds.count(60_000)] = CREATES_PER_MINUTE
    notes: Annotated[str, kinds.or_empty(kinds.text(kinds.MAX_TEXT))] = ""

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.name == LOCAL:
            raise ValueError(f"name: {LOCAL} is the stack on this machine; take another name")
        if self.backend.startswith("unix:") and self.backend_uid is None:
            raise ValueError("needs backend_uid: `tpujob use PATH` finds it out")
        if self.backend:
            return self
        if not self.project:
            raise ValueError("needs project, or backend for one that is deployed")
        if not self.zones:
            raise ValueError("needs zones, in order of preference")
        shared = [b for b in self.buckets.values() if list(self.buckets.values()).count(b) > 2]
        if shared:
            text = "and can be in one, or in a pair of them"
            raise ValueError(f"buckets: {shared[0]} is given for several regions, {text}")
        if self.queue.hand_on == "lab" and self.service_accounts:
            text = "as a slice keeps the account of the user who requested it"
            raise ValueError(f"queue.hand_on: lab does not go with service_accounts, {text}")
        return self

    @property
    def with_external_ips(self) -> bool:
        """Whether the hosts of a slice get external addresses."""
        return self.ssh == "external" if self.external_ips is None else self.external_ips

    @property
    def every_zone(self) -> tuple[str, ...]:
        """The context's zones and those of the grants, in order of preference."""
        return tuple(dict.fromkeys((*self.zones, *(grant.zone for grant in self.grants))))

    @property
    def every_region(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(map(region_of, self.every_zone)))

    @property
    def regions(self) -> tuple[str, ...]:
        """The regions of the context's zones, in order of preference."""
        return tuple(dict.fromkeys(map(region_of, self.zones)))


# Owner and site ----------------------------------------------------------------------------------------------------


def owner(settings: Settings, context: Context) -> str:
    """Return the word that marks resources of this context's backend, as jobs of two stores have the same ids. It is a
    label's value and a folder in the bucket. For Firestore it follows from the database; for a file it is drawn at
    random once. Its last character is a letter."""
    if context.store == "firestore":
        place = f"{context.project}-{context.database.strip('()')}"
        word = re.sub(r"[^a-z0-9]+", "-", place.removesuffix("-default"))
        if len(word) > MAX_OWNER:
            word = f"{word[: MAX_OWNER - 9]}-{hashlib.sha256(word.encode()).hexdigest()[:8]}"
        return f"{word}-fs"
    user = re.sub(r"[^a-z0-9]+", "-", settings.user).strip("-")
    user = user if user[:1].isalpha() else f"u-{user}"

    def draw() -> str:
        return f"{user[:20]}-{''.join(secrets.choice(string.ascii_lowercase) for _ in range(6))}"

    return files.drawn(settings.home / "owner", draw).strip()


def site(context: Context, owner: str, prices: PriceList = LIST) -> Site:
    """Return zones and buckets for jobs; each backend has its folder, `owner`, in the context's buckets."""
    buckets = {region: f"{bucket}/{owner}" for region, bucket in context.buckets.items()}
    grants = tuple(model.Grant(g.type, g.zone, g.pricing, g.chips) for g in context.grants)
    return Site(
        context.name, context.zones, buckets, made_on_demand=False, grants=grants, prices=prices,
        separate_accounts=bool(context.service_accounts),
    )  # fmt: skip


def budgets(context: Context) -> tuple[SharedBudget, ...]:
    """Return the context's budgets, the project's first."""
    from tpujob.domain.money.budget import micros
    from tpujob.domain.money.shared import SharedBudget

    configured = context.budgets
    named = [
        *((("", configured.project),) if configured.project else ()),
        *configured.users.items(),
    ]
    return tuple(SharedBudget(micros(b.usd), user, b.per == "month") for user, b in named)


def way_in(*, emulated: bool, in_google_cloud: bool) -> tuple[str, str]:
    """Return how a new context reaches its hosts by default, and why: never over the open internet."""
    if emulated:
        return "internal", "hosts of the emulator are on this machine"
    if in_google_cloud:
        return (
            "internal",
            "this machine is in Google Cloud, and must be in the network of the slices",
        )
    return (
        "iap",
        "this machine is outside Google Cloud; the tunnel needs no open port and no external addresses",
    )


# Files ---------------------------------------------------------------------------------------------------------------


def path_of(settings: Settings, name: str) -> Path:
    """Return the path of that context's file, which may not exist. Raise BadRequest for an invalid name."""
    if not CONTEXT_NAME.fullmatch(name):
        raise BadRequest(
            f"{name[:60]!r} is not a valid name of a context",
            hint="a-z, 0-9 and -, up to 40 of them",
        )
    return settings.contexts / f"{name}.yaml"


def read(settings: Settings, name: str) -> Context:
    """Return the context of that name. Raise NotFound; BadSpec that lists every mistake with its line."""
    path = path_of(settings, name)
    if not path.exists():
        raise NotFound(
            f"there is no context {name!r}: {path} is not there",
            hint="`tpujob use` lists the contexts; `tpujob init` makes one",
        )
    context = parse(files.read(path), str(path))
    if context.name != name:
        raise BadSpec(f"{path}: name: is {context.name!r}, so the file must be {context.name}.yaml")
    return context


def for_backend(settings: Settings, url: str, name: str = "", *, uid: int | None = None) -> Context:
    """Return the context for a backend that another user runs, under that uid if it has a socket: an existing one with
    that URL and name, or a new one, not yet written, called `name` or after the URL's host. Raise BadRequest if another
    context has that name."""
    for existing in names(settings):
        context = read(settings, existing)
        if context.backend == url and name in ("", existing):
            return context.model_copy(update={"backend_uid": uid})
    name = name or _name_from_url(url)
    if path_of(settings, name).exists():
        raise BadRequest(
            f"there is a context {name!r} already, for something else",
            hint=f"tpujob use {url} --name ANOTHER",
        )
    return make({"name": name, "backend": url, "backend_uid": uid})


def _name_from_url(url: str) -> str:
    """Return a context's name after the host, after the port if the host is an address, or after a socket's folder."""
    if url.startswith("unix:"):
        word = re.sub(r"[^a-z0-9]+", "-", Path(url).parent.name.lower()).strip("-")[:40].strip("-")
        return word if CONTEXT_NAME.fullmatch(word) and word != LOCAL else "shared"
    place = urlsplit(url)
    first = (place.hostname or "").partition(".")[0].lower()
    word = re.sub(r"[^a-z0-9]+", "-", first).strip("-")
    return word[:40].strip("-") if word[:1].isalpha() else f"backend-{place.port or 443}"


def current(settings: Settings) -> Context:
    """Return the context that these settings name. Raise as `read` does."""
    return read(settings, settings.context)


def names(settings: Settings) -> list[str]:
    """Return the names of all contexts that have a file, sorted. The files are not read."""
    stems = (path.stem for path in settings.contexts.glob("*.yaml"))
    return sorted(name for name in stems if CONTEXT_NAME.fullmatch(name))


def write(settings: Settings, context: Context) -> Path:
    """Write the context's file atomically, readable only by its owner, and return the path. Overwrites an old file."""
    path = path_of(settings, context.name)
    prepare(settings)
    files.put(path, text(context))
    return path


def with_bucket(context: Context, region: str, bucket: str) -> Context:
    """Return the context with that bucket for the region. Raise BadSpec for an invalid bucket."""
    values = context.model_dump(mode="json", exclude_unset=True)
    return make(values | {"buckets": {**context.buckets, region: bucket}})


def save_bucket(settings: Settings, context: Context, region: str, bucket: str) -> None:
    """Add the bucket to the context's file. Comments and edits of the user stay if the file has the form that `init`
    writes."""
    new, path = with_bucket(context, region, bucket), path_of(settings, context.name)
    old, head = files.read(path), "\nbuckets:\n"
    before, _, after = old.partition(head) if head in old else (old.rstrip(), "", "")
    edited = f"{before}{head}  {region}: {bucket}\n{after}"
    with contextlib.suppress(BadSpec):
        if parse(edited, str(path)) == new:
            files.put(path, edited)
            return
    files.put(path, text(new))


def parse(text: str, source: str) -> Context:
    """Return the context in a file's text; `source` names the file in errors. Raise BadSpec."""
    document = yaml.load(text, source)
    return validate(Context, document.data, document, of="a context")


def make(fields: Mapping[str, Any]) -> Context:
    """Return a context of these fields. Raise BadSpec that lists every mistake."""
    return validate(Context, dict(fields), of="a context")


def text(context: Context) -> str:
    """Return the file's text: `ssh` if set, and every other value that differs from its default. `parse` of the text
    returns an equal context."""
    from yaml import safe_dump

    values = context.model_dump(mode="json", exclude_defaults=True)
    if "ssh" in context.model_fields_set:
        values["ssh"] = context.ssh
    return _HEAD + safe_dump(json.loads(json.dumps(values)), sort_keys=False, width=100)


_HEAD = "# Where jobs run. `tpujob init` wrote this; edit it freely, then run `tpujob doctor`.\n"
