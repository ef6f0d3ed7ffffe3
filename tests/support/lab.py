"""Somebody with a project in Google Cloud, where emulators stand for all of it."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from tests.support.local_stack import LocalStack


class Lab:
    """Somebody with projects: contexts, a checkout, and the emulators in place of Google."""

    def __init__(self, folder: Path, firestore: str) -> None:
        self.folder = folder
        self.local = LocalStack(folder)
        self.local.run("up")
        self.local.env["TPUJOB_CONTEXT"] = "local"
        emulator, farm = self.local.ready("emulator"), self.local.ready("farm")
        self.tpujob = LocalStack(folder)
        self.tpujob.env |= {
            "FIRESTORE_EMULATOR_HOST": firestore,
            "STORAGE_EMULATOR_HOST": emulator["storage"],
            "TPUJOB_TPU_ENDPOINT": emulator["tpu"],
            "TPUJOB_SSH_PORT": str(farm["ssh_port"]),
            "TPUJOB_REPORT_EVERY": "2",
        }

    def context(self, name: str) -> str:
        """A new context, in use from now on, in a project of its own; its bucket."""
        project, bucket = f"test-{uuid.uuid4().hex[:12]}", f"gs://{name}-{uuid.uuid4().hex[:6]}"
        where = ("--project", project, "--zone", "us-central2-b", "--bucket", bucket)
        self.tpujob.run("init", "--name", name, *where, "--store", "firestore")
        self.tpujob.run("bucket", "create")
        return bucket

    def in_the_cloud(self) -> list[Any]:
        """Every slice, of whomever, and every request for one."""
        return self.local.json("emulator", "status")["slices"]

    def down(self) -> None:
        for context in sorted((self.folder / "state" / "contexts").glob("*.yaml")):
            self.tpujob.env["TPUJOB_CONTEXT"] = context.stem
            self.tpujob.down()
        self.local.down()
