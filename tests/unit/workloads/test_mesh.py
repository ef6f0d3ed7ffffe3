"""The arrangement of devices, on the TPU topologies that libtpu describes without a TPU, in a process of their own."""

import importlib.util
import json
import os
import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("libtpu") is None, reason="there is no libtpu for this platform"
)

#: What libtpu calls them; (4, 4, 4) is a torus.
TOPOLOGIES: dict[str, tuple[str, dict[str, Any]]] = {
    "v4-16": ("v4:2x2x2", {"chip_config_name": "megacore"}),
    "v4-128": ("v4:4x4x4", {"chip_config_name": "megacore", "wrap": [True] * 3}),
    "v5e-16": ("v5e:4x4", {}),
    "v6e-16": ("v6e:4x4", {}),
    "2 x v4-16": ("v4:2x2x2", {"chip_config_name": "megacore", "num_slices": 2}),
}

#: For each topology and each pair of `fsdp` and `tensor`: the mesh, and for each tensor group its hosts and for each
#: place on the axis `dcn` its slices; or the refusal.
DESCRIBE = """
import json, sys
from jax.experimental.topologies import get_topology_desc
from workloads.frame.config import ConfigError, TrainConfig
from workloads.frame.mesh import mesh_of

def arranged(devices, fsdp, tensor, batch=2048):
    try:
        mesh = mesh_of(TrainConfig(batch=batch, fsdp=fsdp, tensor=tensor), devices)
    except ConfigError as error:
        return {"refused": str(error)}
    groups = mesh.devices.reshape(-1, mesh.shape["tensor"])
    return {
        "shape": list(mesh.shape.values()),
        "devices": len({device.id for device in mesh.devices.flat}),
        "hosts": [len({device.process_index for device in group}) for group in groups],
        "slices": [sorted({getattr(d, "slice_index", 0) for d in part.flat}) for part in mesh.devices],
    }

meshes = {}
for name, (topology, options) in json.loads(sys.argv[1]).items():
    devices = get_topology_desc(platform="tpu", topology_name=topology, **options).devices
    for fsdp in (1, 2, 0):
        for tensor in (0, 1, 2, 4, 8):
            meshes[f"{name} fsdp={fsdp} tensor={tensor}"] = arranged(devices, fsdp, tensor)
    meshes[f"{name} batch=24"] = arranged(devices, 0, 1, batch=24)
    meshes[f"{name} fsdp=3"] = arranged(devices, 3, 1)
print(json.dumps(meshes))
"""


@pytest.fixture(scope="module")
def meshes() -> dict[str, Any]:
    environment = {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "TPU_ACCELERATOR_TYPE": "v4-16",
        "TPU_WORKER_HOSTNAMES": "localhost",
        "TPU_SKIP_MDS_QUERY": "1",
        "TPU_LOG_DIR": "disabled",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
    }
    command = [sys.executable, "-c", DESCRIBE, json.dumps(TOPOLOGIES)]
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("name", TOPOLOGIES)
@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_tensor_groups_are_on_one_host(meshes: dict[str, Any], name: str, tensor: int) -> None:
    slices = 2 if name.startswith("2 x") else 1
    within = {"v4-16": 8, "v4-128": 64, "v5e-16": 16, "v6e-16": 16}[name.removeprefix("2 x ")]
    for fsdp in (1, 2, 0):
        parts = fsdp or within // tensor
        mesh = meshes[f"{name} fsdp={fsdp} tensor={tensor}"]
        assert mesh.get("shape") == [slices, within // parts // tensor, parts, tensor], mesh
        assert mesh["devices"] == slices * within, "a device is there twice, or not at all"
        assert set(mesh["hosts"]) == {1}, "devices that share rows are on several hosts"
        assert mesh["slices"] == [[number] for number in range(slices)], "slices are mixed"


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_what_does_not_fit_the_devices_is_refused(meshes: dict[str, Any], name: str) -> None:
    for fsdp in (1, 2, 0):
        assert meshes[f"{name} fsdp={fsdp} tensor=8"]["refused"] == (
            "tensor=8 does not divide the 4 devices of a host, and devices that share rows must be on one host: "
            "give a --tensor that divides them"
        )
    assert "fsdp=3 x tensor=1 does not divide the" in meshes[f"{name} fsdp=3"]["refused"]
    uneven = meshes[f"{name} batch=24"]
    assert "shape" in uneven if name == "v4-16" else "batch=24 cannot be split" in uneven["refused"]


def test_a_tpu_has_no_tensor_groups_unless_asked_for(meshes: dict[str, Any]) -> None:
    assert meshes["v4-16 fsdp=1 tensor=0"]["shape"] == [1, 8, 1, 1]
    assert meshes["2 x v4-16 fsdp=0 tensor=0"]["shape"] == [2, 1, 8, 1]
