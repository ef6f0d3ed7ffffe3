"""HTTPS in front of a server of the tests, as Cloud Run has it in front of a backend."""

import asyncio
import contextlib
import datetime
import ipaddress
import ssl
import threading
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.support.waiting import LONG


@contextlib.contextmanager
def https(url: str, folder: Path) -> Generator[tuple[str, Path]]:
    """Yield the URL of an edge that passes every connection on to the server at `url`, and a file for `SSL_CERT_FILE`,
    by which clients trust it."""
    context, certificate = server_tls(folder)
    port = urlsplit(url).port
    ready, end = threading.Event(), threading.Event()
    bound: list[int] = []

    async def serve() -> None:
        async def passed_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            connections = [writer.transport]
            try:
                inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", port)
                connections.append(inner_writer.transport)
                await asyncio.gather(_pump(reader, inner_writer), _pump(inner_reader, writer))
            except ConnectionRefusedError:
                pass  # the client sees that its connection is closed
            finally:
                for connection in connections:
                    # asyncio of 3.11.2 raises for a TLS transport that has closed itself.
                    with contextlib.suppress(AttributeError):
                        connection.abort()

        edge = await asyncio.start_server(passed_on, "127.0.0.1", 0, ssl=context)
        bound.append(edge.sockets[0].getsockname()[1])
        ready.set()
        while not end.is_set():
            await asyncio.sleep(0.05)
        edge.close()

    thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
    thread.start()
    assert ready.wait(LONG), "the edge does not listen"
    try:
        yield f"https://127.0.0.1:{bound[0]}", certificate
    finally:
        end.set()
        thread.join(LONG)


async def _pump(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    with contextlib.suppress(OSError):
        sink.close()


def server_tls(folder: Path) -> tuple[ssl.SSLContext, Path]:
    """Return the context of a server at 127.0.0.1, and the file of its certificate, which has its own authority."""
    key = ec.generate_private_key(ec.SECP256R1())
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    authority = x509.BasicConstraints(ca=True, path_length=None)
    certificate, secret = folder / "edge.pem", folder / "edge.key"
    certificate.write_bytes(self_signed(key, authority, address))
    pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    secret.write_bytes(key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, secret)
    return context, certificate


def self_signed(key: Any, *extensions: x509.ExtensionType) -> bytes:
    """Return a certificate signed by its own key, in PEM."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "tests")])
    now, day = datetime.datetime.now(datetime.UTC), datetime.timedelta(days=1)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - day).not_valid_after(now + 9 * day)
    for extension in extensions:
        critical = isinstance(extension, x509.BasicConstraints)
        builder = builder.add_extension(extension, critical=critical)
    return builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
