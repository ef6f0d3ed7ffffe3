"""Where the hosts of a slice read the job's data: from a bucket of their region, or from a folder that it is brought to
or shown in. Pure. `agent/setup/` carries it out.
"""

from collections.abc import Mapping

from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.model import Job
from tpujob.domain.spec.data import variable_of
from tpujob.protocol import MountOrder, StageOrder, paths
from workloads.contract import PREFIX

#: of the first data set, whichever its name is
FIRST = f"{PREFIX}DATA"


def places(job: Job) -> dict[str, str]:
    """By name: the prefix in a bucket from which each entry of `data` is read in the region of the serving slice."""
    assert job.slice is not None
    region = region_of(job.slice.zone)
    return {one.name: one.at.get(region, one.base) for one in job.data}


def variables(job: Job) -> dict[str, str]:
    """Of several data sets, where each is in the bucket; that of the first one is part of the context."""
    found = places(job)
    return {variable_of(name): place for name, place in found.items()} if len(found) > 1 else {}


def folders(job: Job) -> dict[str, str]:
    """The variables of those that the program reads from a folder, with the folder."""
    found: dict[str, str] = {}
    for number, (name, folder) in enumerate(_folders(job).items()):
        if not folder:
            continue
        if len(job.data) > 1:
            found[variable_of(name)] = folder
        if number == 0:
            found[FIRST] = folder
    return found


def stage_orders(job: Job) -> list[StageOrder]:
    """Return what is copied to each host before the program starts."""
    how, where = _stages(job), _folders(job)
    return [
        {"name": name, "source": place, "to": where[name]}
        for name, place in places(job).items()
        if how[name] in ("disk", "memory")
    ]


def data_mounts(job: Job) -> list[MountOrder]:
    """Return what is mounted as a folder, read-only."""
    how, where, found = _stages(job), _folders(job), list[MountOrder]()
    for name, place in places(job).items():
        if how[name] == "mount":
            bucket, _, prefix = place.removeprefix("gs://").partition("/")
            found.append(
                {
                    "bucket": f"gs://{bucket}",
                    "to": where[name],
                    "read_only": True,
                    "only_dir": prefix or None,
                    "cache": None,
                }
            )
    return found


def _stages(job: Job) -> Mapping[str, str]:
    """A record from before there were stages has none: its data is streamed."""
    asked = {one.to: one.stage for one in job.spec.data}
    return {one.name: asked.get(one.name, "stream") for one in job.data}


def _folders(job: Job) -> dict[str, str]:
    """By name, in order; empty: the program reads the bucket."""
    return {
        name: "" if how == "stream" else paths.staged_folder(name, memory=how == "memory")
        for name, how in _stages(job).items()
    }
