"""Policies of the organization that stand in the way of slices, and the setting that complies with each.

The names are from Google's list of constraints ("Organization policy constraints"). Some have a newer form beside the
older one, such as `compute.managed.vmExternalIpAccess`.
"""

from collections.abc import Mapping
from types import MappingProxyType

#: what complies with each policy that may refuse a slice, or who can help
CURES: Mapping[str, str] = MappingProxyType(
    {
        "compute.vmExternalIpAccess": "set `ssh: internal` or `ssh: iap` in the context, without `external_ips`",
        "compute.requireOsLogin": "ask for an exception for this project: OS Login ignores the keys of slices",
        "compute.requireShieldedVm": "set `secure_boot: true` in the context",
        "compute.disableGuestAttributesAccess": (
            "ask for an exception for this project: hosts publish their SSH host keys as guest attributes"
        ),
        "gcp.resourceLocations": (
            "name zones and buckets that the policy allows, and `secret_region` in the context"
        ),
        "iam.allowedPolicyMemberDomains": (
            "people outside the organization need `door: public` in the context, and service accounts of it"
        ),
        "compute.restrictSharedVpcSubnetworks": "name a `subnetwork` that the policy allows in the context",
        "compute.restrictVpcPeering": "name a `network` that needs no peering in the context",
        "iam.disableCrossProjectServiceAccountUsage": (
            "name a `service_account` of this project in the context"
        ),
    }
)
