"""`door:` and `sign_in:` of a context: how people and programs identify themselves to a deployed backend. The backend's
file and those of its clients have the same keys.
"""

from typing import Annotated, Literal, get_args

from tpujob.domain.spec import fields as kinds

#: what stands in front of a deployed backend: the check of Cloud Run (IAM), Identity-Aware Proxy, or nothing
DoorKind = Literal["iam", "iap", "public"]
DOORS: tuple[DoorKind, ...] = get_args(DoorKind)
Door = Annotated[DoorKind, kinds.Word("door of a backend")]

MACHINE = "machine"  #: as `account`: the service account of this machine

_CLIENT = r"[0-9a-z-]{1,128}\.apps\.googleusercontent\.com"
_SECRET = r"[A-Za-z0-9_-]{1,128}"  # noqa: S105
_AUDIENCE = r"/projects/[0-9]{1,20}/locations/[a-z0-9-]{1,40}/services/[a-z0-9-]{1,63}"
_ACCOUNT = rf"{MACHINE}|[-a-z0-9.]+@[-a-z0-9.]+"


_Client = Annotated[
    str, kinds.or_empty(kinds.matching(_CLIENT, "an OAuth client's id, which Google Cloud shows"))
]
_Secret = Annotated[str, kinds.or_empty(kinds.matching(_SECRET, "an OAuth client's secret"))]


class SignIn(kinds.SpecPart):
    """The lab's OAuth client, and the account that signs in. The secret of a desktop client is public."""

    client_id: _Client = ""  #: id of a client of the type "Desktop app"
    client_secret: _Secret = ""
    #: whether tokens of `gcloud auth print-identity-token` are accepted; they are valid for other services, too
    gcloud: bool = False
    #: audience of IAP's assertions
    iap_audience: Annotated[
        str,
        kinds.or_empty(
            kinds.matching(_AUDIENCE, "/projects/NUMBER/locations/REGION/services/NAME")
        ),
    ] = ""
    #: identity of a program: `machine`, or a service account that this machine may act as; empty: a person signs in
    account: Annotated[
        str,
        kinds.or_empty(
            kinds.matching(_ACCOUNT, f"{MACHINE}, or the e-mail address of a service account")
        ),
    ] = ""

    @property
    def clients(self) -> frozenset[str]:
        return frozenset({self.client_id} - {""})
