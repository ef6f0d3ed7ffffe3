"""A certificate for Google's names of Cloud Storage, which only emulated hosts trust. Each start makes one; its keys
are not kept."""

import datetime
import ssl
import tempfile
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_VALID = datetime.timedelta(days=3650)
#: where Linux distributions keep the authorities that the system trusts
_OF_THE_SYSTEM = ("/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt")


def server_context(names: Sequence[str], bundle: Path) -> ssl.SSLContext:
    """Return the context of a server with a certificate for these names. Write `bundle`: its new authority, and those
    that this machine trusts. Raise OSError."""
    authority_key, key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    authority = _certificate("tpujob emulator", authority_key, "tpujob emulator", authority_key, [])
    leaf = _certificate(names[0], key, "tpujob emulator", authority_key, names)
    public = [
        certificate.public_bytes(serialization.Encoding.PEM) for certificate in (leaf, authority)
    ]
    system = [Path(path).read_bytes() for path in _OF_THE_SYSTEM if Path(path).is_file()]
    bundle.write_bytes(b"\n".join([public[1], *system]))
    secret = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # `load_cert_chain` reads nothing but files; this one is private
    with tempfile.NamedTemporaryFile() as file:
        file.write(public[0] + secret)
        file.flush()
        context.load_cert_chain(file.name)
    return context


def _certificate(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    issuer_key: ec.EllipticCurvePrivateKey,
    names: Sequence[str],
) -> x509.Certificate:
    """Return a certificate of a server with these names; without names, of an authority."""
    now = datetime.datetime.now(datetime.UTC)
    authority = x509.SubjectKeyIdentifier.from_public_key(issuer_key.public_key())
    builder = (
        x509.CertificateBuilder()
        .subject_name(_common_name(subject))
        .issuer_name(_common_name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + _VALID)
        .add_extension(x509.BasicConstraints(ca=not names, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(authority),
            critical=False,
        )
    )
    if names:
        alternatives = x509.SubjectAlternativeName(map(x509.DNSName, names))
        builder = builder.add_extension(alternatives, critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
