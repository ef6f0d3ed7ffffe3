"""The variables by which programs find the hosts of an emulated slice, and no program of another slice.

They are for `jax.distributed.initialize()` without arguments, and hold the port for what otherwise takes a fixed one.

JAX asks the metadata server only where it sees a TPU on the PCI bus. It takes the same answers from the variables that
a TPU host has in Google Kubernetes Engine; with JAX_FORCE_TPU_INIT it does so without a TPU, with and without libtpu
(`GkeTpuCluster` in `jax/_src/clusters/cloud_tpu_cluster.py`). JAX_PLATFORMS stays `cpu`, so libtpu is not loaded.

PyTorch listens on every address of this machine. Its programs read the port from MASTER_PORT, and torchrun reads it
from PET_MASTER_PORT in place of its default, 29500.
"""

from collections.abc import Sequence


def cluster_variables(addresses: Sequence[str], host: int, port: int) -> dict[str, str]:
    """Return the variables of host `host` of a slice. `addresses`: those of its hosts, in order. `port`: that on which
    programs of host 0 listen, on every address of this machine; the same for all slices of a Multislice.

    A plan that joins several slices has MEGASCALE variables of its own. Without any, JAX would ask the metadata
    server for them, for which it needs the package `requests`."""
    return {
        "JAX_FORCE_TPU_INIT": "1",
        "JAX_COORDINATOR_PORT": str(port),
        "MASTER_PORT": str(port),
        "PET_MASTER_PORT": str(port),
        "TPU_WORKER_HOSTNAMES": ",".join(addresses),
        "TPU_WORKER_ID": str(host),
        "MEGASCALE_COORDINATOR_ADDRESS": "",
        "MEGASCALE_NUM_SLICES": "1",
        "MEGASCALE_SLICE_ID": "0",
    }
