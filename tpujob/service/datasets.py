"""Lookup of a job's data in each region of its offers, before the job is created and for `tpujob data where`.

Reads only. `domain/capacity/datasets.py` decides where the data should be. The reconciler makes copies, or, from a
source that the storage cannot read, the client that submits the job.
"""

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal

from tpujob.api import DataPlaceView, DataView
from tpujob.domain.capacity import datasets
from tpujob.domain.capacity.site import Site, home_region
from tpujob.domain.copies import Dataset
from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.hardware.prices import GIB
from tpujob.domain.money.estimate_shapes import DataToCopy
from tpujob.domain.spec import JobSpec
from tpujob.domain.spec.data import Data
from tpujob.errors import BadSpec, NotFound, Refused
from tpujob.ports import Blobs, BucketPlace, Comparison, Copies

#: seconds to ask where a bucket lies, and to count what lies below two prefixes
ANSWER, COUNT = 15.0, 10.0
_NOTHING = Comparison(0, 0, 0, 0, counted=True)


class DataPlaces:
    def __init__(self, blobs: Blobs, copies: Copies, site: Site) -> None:
        self._blobs, self._copies, self._site = blobs, copies, site

    def find(self, spec: JobSpec, zones: Sequence[str]) -> tuple[Dataset, ...]:
        """Return where each entry of `data` is read from each zone. Raises BadSpec for a bucket that cannot be read."""
        return tuple(self._one(entry, zones) for entry in spec.data)

    def find_readable(
        self, spec: JobSpec, zones: Sequence[str]
    ) -> tuple[list[Dataset], dict[str, BadSpec]]:
        """Return the same for a plan or an estimate, which do not need the data: the entries that can be read, and by
        name why each of the others cannot."""
        readable: list[Dataset] = []
        problems: dict[str, BadSpec] = {}
        for entry in spec.data:
            try:
                readable.append(self._one(entry, zones))
            except BadSpec as error:
                problems[entry.to] = error
        return readable, problems

    def _one(self, entry: Data, zones: Sequence[str]) -> Dataset:
        if entry.source.startswith("gs://"):
            place = self._place(entry)
            return datasets.placed(
                entry, entry.source, place.location, place.regions, zones, self._site
            )
        home = home_region(zones[0], self._site)
        bucket = self._site.bucket_in(home)
        assert bucket, f"{home} has no bucket"
        base = datasets.kept_in(bucket, entry)
        return datasets.placed(entry, base, home, (home,), zones, self._site)

    def _place(self, entry: Data) -> BucketPlace:
        try:
            return self._blobs.place(entry.source, timeout=ANSWER)
        except NotFound as error:
            bucket = entry.source.removeprefix("gs://").partition("/")[0]
            raise BadSpec(f"data: {entry.source}: there is no bucket gs://{bucket}") from error
        except Refused as error:
            raise BadSpec(f"data: {entry.source}: {error.message}", hint=error.hint) from error

    def check(self, datasets: Sequence[Dataset]) -> None:
        """Raises BadSpec for an entry with nothing at the place that copies are made from."""
        for dataset in datasets:
            if self._count(dataset, "").objects:
                continue
            if dataset.base == dataset.source:
                raise BadSpec(f"data: there is nothing below {dataset.source}/")
            raise BadSpec(
                f"data: {dataset.source} is not in {dataset.base} yet",
                hint=f"tpujob data sync {dataset.source} {dataset.base}",
            )

    def _count(self, dataset: Dataset, target: str) -> Comparison:
        try:
            return self._copies.compare(dataset.base, target, timeout=COUNT)
        except NotFound:  # of a bucket that is made on demand, or of one that is yet to be made
            if not target:
                return _NOTHING
            whole = self._count(dataset, "")
            return replace(whole, missing=whole.objects, missing_bytes=whole.bytes)
        except Refused as error:
            raise BadSpec(f"data: {dataset.source}: {error.message}", hint=error.hint) from error

    def missing(self, spec: JobSpec, zone: str) -> list[DataToCopy]:
        """Return what must be copied to the region of that zone before a slice is requested there. Raises BadSpec."""
        region = region_of(zone)
        readable, problems = self.find_readable(spec, [zone])
        uncopied = [
            DataToCopy(name, "", region, problem=error.message.removeprefix("data: "))
            for name, error in problems.items()
        ]
        for dataset in readable:
            if dataset.at[region] != dataset.base:
                lacks = self._count(dataset, dataset.at[region])
                size = (lacks.missing, lacks.missing_bytes)
                uncopied.append(DataToCopy(dataset.name, dataset.location, region, *size))
        return uncopied

    def views(self, datasets: Sequence[Dataset], zones: Sequence[str]) -> list[DataView]:
        """Return the entries with what each region lacks, and what the copy costs by list price."""
        return [self._view(dataset, zones) for dataset in datasets]

    def _view(self, dataset: Dataset, zones: Sequence[str]) -> DataView:
        whole = self._count(dataset, "")
        return DataView(
            name=dataset.name,
            source=dataset.source,
            base=dataset.base,
            location=dataset.location,
            to_bring=dataset.base != dataset.source,
            objects=whole.objects,
            bytes=whole.bytes,
            counted=whole.counted,
            places=[self._in(dataset, region, zones, whole) for region in dataset.at],
        )

    def _in(
        self, dataset: Dataset, region: str, zones: Sequence[str], whole: Comparison
    ) -> DataPlaceView:
        target = dataset.at[region]
        copied = target != dataset.base
        lacks = self._count(dataset, target) if copied else _NOTHING
        prices = self._site.prices
        usd = (
            Decimal(0) if region in dataset.local else prices.traffic(dataset.location, region).usd
        )
        month = prices.storage(region)
        return DataPlaceView(
            region=region,
            zones=[zone for zone in zones if region_of(zone) == region],
            path=target,
            copied=copied,
            missing=lacks.missing,
            missing_bytes=lacks.missing_bytes,
            usd_copy=float(usd * lacks.missing_bytes / GIB + prices.class_a.of(lacks.missing)),
            usd_epoch=float(usd * whole.bytes / GIB),
            usd_month=None if month is None else float(month.of(1) * whole.bytes / GIB),
        )
