"""moto's S3 server, in this process, and the settings that lead to it."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import boto3
from botocore import session
from botocore.config import Config
from moto.server import ThreadedMotoServer


@contextmanager
def running() -> Iterator[str]:
    """Yield the URL of the server. Meanwhile the descriptions of AWS's services are read once, not by each client."""
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer("127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    try:
        with mock.patch.object(session, "create_loader", cache(session.create_loader)):
            yield f"http://{host}:{port}"
    finally:
        server.stop()


def settings(url: str, folder: Path) -> dict[str, str]:
    """The environment of who uses the server, and no other settings of AWS."""
    return {
        "AWS_ENDPOINT_URL": url,
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
        "AWS_CONFIG_FILE": str(folder / "none"),
        "AWS_SHARED_CREDENTIALS_FILE": str(folder / "none"),
        "AWS_MAX_ATTEMPTS": "1",
    }


def client() -> Any:
    """Return a client of another program, configured by the environment."""
    return boto3.client("s3", config=Config(request_checksum_calculation="when_required"))
