"""The places of a job's data for the hosts of a slice: a bucket of their region, or a folder that `agent/setup/` fills
or mounts. Pure."""

from collections.abc import Mapping

from tpujob.contract import PREFIX
from tpujob.domain.hardware.accelerators import region_of
from tpujob.domain.model import Job
from tpujob.domain.spec.data import variable_of
from tpujob.protocol import MountOrder, StageOrder, paths

#: the variable of the first data set
FIRST = f"{PREFIX}DATA"


def places(job: Job) -> dict[str, str]:
    """Return the prefix in a bucket of each data set, by name, in the region of the serving slice."""
    assert job.slice is not None
    region = region_of(job.slice.zone)
    return {data_set.name: data_set.at.get(region, data_set.base) for data_set in job.data}


def variables(job: Job) -> dict[str, str]:
    """Return the variables with the prefix of each data set. None for a single one: the program's context has it."""
    if len(job.data) <= 1:
        return {}
    return {variable_of(name): place for name, place in places(job).items()}


def folders(job: Job) -> dict[str, str]:
    """Return the variables with the folder of each data set that the program reads from a folder."""
    variables: dict[str, str] = {}
    for number, (name, folder) in enumerate(_folders(job).items()):
        if not folder:
            continue
        if len(job.data) > 1:
            variables[variable_of(name)] = folder
        if number == 0:
            variables[FIRST] = folder
    return variables


def stage_orders(job: Job) -> list[StageOrder]:
    """Return the orders to copy data to each host before the program starts."""
    stages, folders = _stages(job), _folders(job)
    return [
        {"name": name, "source": source, "to": folders[name]}
        for name, source in places(job).items()
        if stages[name] in ("disk", "memory")
    ]


def data_mounts(job: Job) -> list[MountOrder]:
    """Return the orders to mount data as folders, read-only."""
    stages, folders = _stages(job), _folders(job)
    orders: list[MountOrder] = []
    for name, source in places(job).items():
        if stages[name] == "mount":
            bucket, _, prefix = source.removeprefix("gs://").partition("/")
            orders.append(
                {
                    "bucket": f"gs://{bucket}",
                    "to": folders[name],
                    "read_only": True,
                    "only_dir": prefix or None,
                    "cache": None,
                }
            )
    return orders


def _stages(job: Job) -> Mapping[str, str]:
    """Return the stage of each data set, by name."""
    requested = {data_set.to: data_set.stage for data_set in job.spec.data}
    return {data_set.name: requested[data_set.name] for data_set in job.data}


def _folders(job: Job) -> dict[str, str]:
    """Return the folder of each data set, by name, in order; empty: the program reads the bucket."""
    return {
        name: "" if stage == "stream" else paths.staged_folder(name, memory=stage == "memory")
        for name, stage in _stages(job).items()
    }
