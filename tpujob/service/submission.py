"""Submission of a job: its plan, the shipped code, and the first record."""

import contextlib
import hashlib
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import IO, Any, NamedTuple

from tpujob.api import Checkout, PlanView, RefusalView
from tpujob.domain.access import Principal, Role
from tpujob.domain.capacity import datasets, race
from tpujob.domain.capacity.offers import Offer, offers, unsure
from tpujob.domain.capacity.site import Site, check_location, home_region, settled, traffic
from tpujob.domain.events import Event, EventKind
from tpujob.domain.hardware import accelerators
from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.host import environment, plan
from tpujob.domain.model import Code, DesiredState, Job, State
from tpujob.domain.money.estimate_shapes import DataToCopy
from tpujob.domain.observations import Funds
from tpujob.domain.spec import JobSpec, dump, elements, parse
from tpujob.errors import BadRequest, BadSpec, Conflict, NotFound, Refused
from tpujob.ports import Blobs, Clock, Copies
from tpujob.protocol.bundle import BadBundle, members
from tpujob.protocol.paths import owner_folder
from tpujob.service.datasets import DataPlaces
from tpujob.service.money import budgets
from tpujob.submit.archive import workloads_bundle

#: seconds to write a bundle to the bucket
BUCKET = 60.0
#: seconds to ask whether the bucket is there
ANSWER = 15.0


#: returns the types that the cloud lists in a zone, None if it does not answer; raises Refused for a zone that is
#: closed to the project
TypesInZone = Callable[[str], frozenset[str] | None]


def _zones(choices: Sequence[Offer]) -> list[str]:
    return list(dict.fromkeys(offer.zone for offer in choices))


def types_unknown(zone: str) -> frozenset[str] | None:  # noqa: ARG001
    """Return None: a place without lists of types."""
    return None


class ResolvedSpec(NamedTuple):
    """A spec with its place: what it gets at a site."""

    spec: JobSpec  #: with the site's defaults
    offers: tuple[Offer, ...]  #: where it may run, best first
    buckets: dict[str, str]  #: by zone
    #: warnings about types and zones that no table has
    doubts: list[str]

    @property
    def first(self) -> Offer:
        return self.offers[0]

    @property
    def bucket(self) -> str:
        """The bucket of the first offer."""
        return self.buckets[self.first.zone]


class Submission:
    """The part of `api.JobsApi` for what comes before a job."""

    def __init__(
        self,
        blobs: Blobs,
        copies: Copies,
        clock: Clock,
        site: Site,
        offered: TypesInZone,
        funds: Callable[[Job], Funds],
        word: Callable[[], str],
    ) -> None:
        """`word`: draws one for the workdir and the slices of each new job: eight hexadecimal digits."""
        self._blobs, self._clock = blobs, clock
        self._site, self._offered, self._funds = site, offered, funds
        self._word = word
        self._data = DataPlaces(blobs, copies, site)

    def plan(self, placed: ResolvedSpec) -> PlanView:
        spec, choices, buckets, doubts = placed
        if not self._site.made_on_demand:
            self._buckets_are_there(buckets, spec)
        first, zones = placed.first, _zones(choices)
        data, problems = self._data.find_readable(spec, zones)
        views = self._data.views(data, zones)
        for item in views:
            if not item["objects"] and not item["to_bring"]:
                problems[item["name"]] = BadSpec(f"data: there is nothing below {item['source']}/")
        facts, slices = accelerators.find(first.type, first.provider), spec.tpu.slices
        count = elements.size(spec)
        program = next(elements.elements(spec)).spec if count else spec
        view = PlanView(
            name=spec.name,
            type=first.type,
            generation=facts.generation,
            tpu_slices=slices,
            chips=facts.chips * slices,
            hosts=facts.hosts * slices,
            topology=facts.topology,
            zone=first.zone,
            zones=zones,
            pricing=first.pricing,
            system_image=first.system_image,
            usd_per_hour=first.usd_per_hour,
            hbm_gib=facts.chips * slices * facts.chip.hbm_gib,
            peak_bf16_tflops=facts.chips * slices * facts.chip.tflops,
            bucket=placed.bucket,
            command=plan.command_line(program),
            environment=environment.environment_words(spec),
            mounts=environment.mount_words(spec),
            data=views,
            refused=[RefusalView(message=e.message, hint=e.hint) for e in problems.values()],
            warnings=[
                *doubts,
                *traffic(zones, self._site),
                *environment.warnings(spec),
                *elements.warnings(spec),
            ],
            spec=dump(spec),
        )
        if count:
            view["elements"] = count
            view["at_once"] = min(count, elements.at_once(spec) or count)
        return view

    def check_data(self, caller: Principal, spec: JobSpec) -> None:
        """Raises BadSpec for data in a folder of another user, as `datasets.check_folders`, unless an admin asks."""
        if not caller.at_least(Role.ADMIN):
            datasets.check_folders(spec.data, caller.folder, self._site)

    def to_copy(self, spec: JobSpec, zone: str) -> list[DataToCopy]:
        """Return the data of a job that the zone lacks. Raises BadSpec for data that cannot be read."""
        return self._data.missing(spec, zone)

    def put_bundle(
        self, caller: Principal, sha256: str, data: bytes | IO[bytes], *, bucket: str
    ) -> str:
        if _sha256(data) != sha256:
            raise BadRequest(
                "the bundle's content does not have the hash that it was sent with",
                hint="Send it again.",
            )
        region = self._site.region_of_bucket(bucket)
        if region is None:  # only the buckets of plans are written to
            raise BadRequest(
                f"{bucket!r} is not a bucket of this backend", hint="Use the `bucket` of the plan."
            )
        _check_members(data)
        if self._site.made_on_demand:
            self._blobs.ensure_bucket(bucket, region, timeout=ANSWER)
        return self._put_once(f"{_bundles(caller, bucket)}{sha256}.tar.gz", data)

    def _put_once(self, path: str, data: bytes | IO[bytes]) -> str:
        """Store an object that is named by its content."""
        with contextlib.suppress(Conflict):  # the same content is there already
            self._blobs.put(path, data, if_generation=0, timeout=BUCKET)
        return path

    def placed(self, spec: Mapping[str, Any]) -> ResolvedSpec:
        """Return the spec with its place; asks the cloud for the types of zones that no table has. Raises BadSpec."""
        parsed = settled(parse(spec), self._site)
        if parsed.is_group:
            parse(dump(elements.longest(parsed)))
        doubts = accelerators.doubts(parsed.tpu.types, parsed.tpu.zones)
        listed: dict[str, frozenset[str]] = {}
        for zone in unsure(parsed):
            accepted = self._types_in(zone)
            if accepted is None:
                doubts.append(f"{zone} cannot list its TPU types now")
            else:
                listed[zone] = accepted
        choices = offers(parsed, listed=listed, prices=self._site.prices)
        race.check(parsed, choices)
        budgets.check_spec(parsed, choices, self._clock.now())
        buckets: dict[str, str] = {}
        for zone in _zones(choices):
            home = home_region(zone, self._site)
            bucket = self._site.bucket_in(home)
            assert bucket, f"{home} has no bucket"
            buckets[zone] = bucket
        return ResolvedSpec(parsed, choices, buckets, doubts)

    def _types_in(self, zone: str) -> frozenset[str] | None:
        """Return the types that the cloud lists in a zone; None: it does not answer. Raises BadSpec for a closed
        zone."""
        try:
            return self._offered(zone)
        except Refused as refused:
            near = accelerators.nearest_zone(zone)
            meant = f"did you mean {near[0]}?" if near and near[0] != zone else refused.hint
            raise BadSpec(f"tpu.zones: {zone}: {refused.message}", hint=meant) from refused

    def _buckets_are_there(self, buckets: Mapping[str, str], spec: JobSpec) -> None:
        """Make sure that the bucket of each zone exists, and is local to it unless the spec allows otherwise. Raises
        BadSpec."""
        for bucket in dict.fromkeys(buckets.values()):
            region = self._site.region_of_bucket(bucket) or ""
            if self._site.made_on_demand:
                self._blobs.ensure_bucket(bucket, region, timeout=ANSWER)
                continue
            try:
                place = self._blobs.place(bucket, timeout=ANSWER)
            except NotFound as error:
                raise BadSpec(
                    f"there is no bucket {bucket}, which the context {self._site.name} names for {region}",
                    hint=f"tpujob bucket create --region {region}",
                ) from error
            zones = [zone for zone, of_zone in buckets.items() if of_zone == bucket]
            allowed = spec.tpu.allow_cross_region
            check_location(
                bucket, place.location, place.regions, zones, self._site, allowed=allowed
            )

    def first_record(
        self,
        placed: ResolvedSpec,
        caller: Principal,
        bundles: Sequence[str],
        code: Checkout | None = None,
    ) -> tuple[Job, Event]:
        """Return the job that a spec of that user makes and its first event, not stored yet."""
        parsed, choices, buckets, _ = placed
        bucket = placed.bucket
        mine = _bundles(caller, bucket)
        if any(not b.startswith(mine) or "/" in b[len(mine) :] for b in bundles):
            raise BadRequest(f"bundles must be in {mine}", hint="Use the `bucket` of the plan.")
        self._buckets_are_there(buckets, parsed)
        data = self._data.find(parsed, _zones(choices))
        self._data.check(data)
        shipped = [*self._own(caller, parsed, bucket), *bundles]
        job, created = self._record(parsed, placed.first, caller, bucket, shipped)
        budgets.check_new(job, choices, self._funds(job), self._clock.now())
        shipped_code = self._code(caller, code, bucket)
        local = {region_of(zone): of_zone for zone, of_zone in buckets.items()}
        return replace(
            job, code=shipped_code, grants=self._site.grants, buckets=local, data=data
        ), created

    def _code(self, caller: Principal, code: Checkout | None, bucket: str) -> Code | None:
        """Return the code for the record. A diff is too long for it: it is stored as an object beside the bundle, named
        by its own hash, as one bundle can come from several commits."""
        if code is None or not code["commit"]:
            return None
        diff = code["diff"].encode(errors="replace")
        name = f"{_bundles(caller, bucket)}{hashlib.sha256(diff).hexdigest()}.diff"
        return Code(
            commit=code["commit"],
            branch=code["branch"],
            dirty=code["dirty"],
            diff=self._put_once(name, diff) if diff else "",
        )

    def _own(self, caller: Principal, spec: JobSpec, bucket: str) -> list[str]:
        """Store the bundled workloads like a user's code, and return their paths."""
        bundles = [workloads_bundle()] if spec.run.workload else []
        return [self.put_bundle(caller, b.sha256, b.data, bucket=bucket) for b in bundles]

    def _record(
        self, spec: JobSpec, first: Offer, caller: Principal, bucket: str, bundles: Sequence[str]
    ) -> tuple[Job, Event]:
        now = self._clock.now()
        kind = accelerators.several(first.type, spec.tpu.slices)
        text = f"{caller.name} submitted {spec.name} for {first.pricing} {kind}"
        created = Event(EventKind.CREATED, now, State.QUEUED, text, by=caller.name)
        job = Job(
            id="",
            name=spec.name,
            user=caller.name,
            owner=caller.id,
            folder=caller.folder,
            suffix=self._word(),
            spec=spec,
            state=State.QUEUED,
            desired=DesiredState.RUN,
            created_at=now,
            state_since=now,
            wake=now,
            bucket=bucket,
            bundles=tuple(dict.fromkeys(bundles)),
            group_size=elements.size(spec),
            message=text,
            held_by=caller.name if spec.start == "held" else "",
        )
        return job, created


def _bundles(caller: Principal, bucket: str) -> str:
    """Return the folder of a user's bundles. Jobs of other users cannot name one of them."""
    return f"{owner_folder(bucket, caller.folder)}/bundles/"


def _check_members(data: bytes | IO[bytes]) -> None:
    """Raises BadRequest for an archive that hosts would refuse, before a machine is paid for."""
    packed = io.BytesIO(data) if isinstance(data, bytes) else data
    packed.seek(0)
    try:
        for _ in members(packed):
            pass
    except BadBundle as error:
        raise BadRequest(str(error), hint="Send a tar.gz, as `tpujob create` makes it.") from error


def _sha256(data: bytes | IO[bytes]) -> str:
    if isinstance(data, bytes):
        return hashlib.sha256(data).hexdigest()
    data.seek(0)
    return hashlib.file_digest(data, "sha256").hexdigest()  # pyright: ignore[reportArgumentType]
