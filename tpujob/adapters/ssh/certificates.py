"""Keys for people: a certificate for a key that a person has just made, which lets it in for some minutes.

Hosts accept what the slice's own key has signed, as `AUTHORITY` stands before it in the `authorized_keys` of the user,
where the backend puts it with each plan. So no file of the SSH server is touched, no connection is made to let somebody
in, nothing has to be removed afterwards, and the server's log names the person. A line for each person's key would need
all of that, and its `expiry-time` is in the host's time zone before OpenSSH 9.1.
"""

import secrets

from tpujob.errors import BadRequest

AUTHORITY = "cert-authority"
LIFETIME = 600.0  #: seconds in which a session may be opened; it lasts as long as it likes
SKEW = 300.0  #: seconds that the host's clock may be behind
_LONGEST = 200  #: characters of who it is for
#: what OpenSSH lets it do: no forwarding of ports, agents or displays
_ALLOWED = (b"permit-pty",)


def authority_line(public_line: str) -> str:
    """The line of `authorized_keys` by which hosts accept what that key signs."""
    return f"{AUTHORITY} {public_line}"


def sign(authority: str, public_line: str, *, user: str, holder: str, now: float) -> str:
    """A certificate of that public key for the login `user`, as `ssh-keygen` writes one; `holder` is who has the key,
    for the log. `authority`: the slice's private key. Raises BadRequest for what is no Ed25519 key."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives import serialization
    from cryptography.hazmat.primitives.asymmetric.ed25519 import (
        Ed25519PrivateKey,
        Ed25519PublicKey,
    )

    try:
        key = serialization.load_ssh_public_key(public_line.encode())
    except (ValueError, UnsupportedAlgorithm):
        key = None
    if not isinstance(key, Ed25519PublicKey):
        raise BadRequest(
            "the key to be let in is no public key of type ssh-ed25519",
            hint="`tpujob ssh` makes one; another client sends what `ssh-keygen -t ed25519` wrote into the .pub file.",
        )
    signer = serialization.load_ssh_private_key(authority.encode(), password=None)
    assert isinstance(signer, Ed25519PrivateKey)
    builder = (
        serialization.SSHCertificateBuilder()
        .public_key(key)
        .serial(secrets.randbits(63))
        .type(serialization.SSHCertificateType.USER)
        .key_id(holder[:_LONGEST].encode())
        .valid_principals([user.encode()])
        .valid_after(int(now - SKEW))
        .valid_before(int(now + LIFETIME))
    )
    for name in _ALLOWED:
        builder = builder.add_extension(name, b"")
    return builder.sign(signer).public_bytes().decode()
