"""The variables by which programs find the emulator in place of Google: those of its hosts, those of a person's shell.
Pure; standard library only."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def of_storage(url: str) -> dict[str, str]:
    """Makes each client library find the emulated storage at `gs://`."""
    return {
        "STORAGE_EMULATOR_HOST": url,
        "TENSORSTORE_GCS_HTTP_URL": url,
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # else it tries TLS for a minute first
    }


def of_shell(
    emulator: Mapping[str, Any], farm: Mapping[str, Any], *, project: str, gcloud: Path
) -> dict[str, str]:
    """For Google's Python clients, for gcloud, and for a context of tpujob. `emulator`, `farm`: what their ready files
    hold; `gcloud`: a folder that is gcloud's alone, so that neither its accounts nor its settings are touched."""
    return {
        **of_storage(emulator["storage"]),
        "TPUJOB_TPU_ENDPOINT": emulator["tpu"],
        "TPUJOB_SSH_PORT": str(farm["ssh_port"]),
        "CLOUDSDK_CONFIG": str(gcloud),
        "CLOUDSDK_CORE_PROJECT": project,
        "CLOUDSDK_AUTH_DISABLE_CREDENTIALS": "true",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_TPU": f"{emulator['tpu_rest']}/",
        "CLOUDSDK_API_ENDPOINT_OVERRIDES_STORAGE": f"{emulator['storage']}/storage/v1/",
    }


def names() -> list[str]:
    """Of the variables of a shell, wherever they lead."""
    nowhere = {"storage": "", "tpu": "", "tpu_rest": ""}
    return list(of_shell(nowhere, {"ssh_port": 0}, project="", gcloud=Path()))
