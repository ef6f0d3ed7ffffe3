"""The changes of a project by gcloud at set-up: the answers of Google's APIs, by their reference pages."""

from typing import Any

from tests.support.google_server import (
    COMPUTE,
    FIREWALLS,
    MANAGER,
    NUMBER,
    PROJECT,
    USAGE,
    Asked,
    GoogleServer,
)

IAM = "iam.googleapis.com"
BILLING = "cloudbilling.googleapis.com"
_V1 = f"{MANAGER}/v1/projects"
_DONE = {"done": True, "response": {}}


def open_to_gcloud(google: GoogleServer) -> dict[str, str]:
    """Let the server answer the commands of the guide; return the variables that lead gcloud there. The answers show
    firewall rules once they are made."""
    rules = google.answers[FIREWALLS]
    policy: dict[str, Any] = {"etag": "BwYAAAAAAAA=", "version": 1, "bindings": []}

    def firewalls(request: Asked) -> Any:
        if request.verb == "GET":
            return rules
        rules["items"].append(request.body)
        google.answers[f"{FIREWALLS}/{request.body['name']}"] = request.body
        link = f"{google.url}/{FIREWALLS}/{request.body['name']}"
        operation = {"name": "operation-1", "status": "DONE", "operationType": "insert"}
        return operation | {"targetLink": link, "selfLink": f"{google.url}/{COMPUTE}/operation-1"}

    def set_policy(request: Asked) -> Any:
        policy.update(request.body["policy"])
        return policy

    def account(request: Asked) -> Any:
        email = f"{request.body['accountId']}@{PROJECT}.iam.gserviceaccount.com"
        return {"name": f"projects/{PROJECT}/serviceAccounts/{email}", "email": email}

    google.answers |= {
        _V1: {"name": "operations/cp.1"},
        f"{MANAGER}/v1/operations/cp.1": {"name": "operations/cp.1", **_DONE},
        f"{_V1}/{PROJECT}": {"projectId": PROJECT, "projectNumber": NUMBER},
        f"{_V1}/{PROJECT}:getIamPolicy": lambda _: policy,
        f"{_V1}/{PROJECT}:setIamPolicy": set_policy,
        f"{USAGE}/v1/projects/{PROJECT}/services/cloudapis.googleapis.com:enable": _DONE,
        f"{USAGE}/v1/projects/{PROJECT}/services:batchEnable": {"name": "operations/u.1", **_DONE},
        f"{IAM}/v1/projects/{PROJECT}/serviceAccounts": account,
        f"{BILLING}/v1/projects/{PROJECT}/billingInfo": lambda request: request.body,
        FIREWALLS: firewalls,
    }
    hosts = {
        "SERVICEUSAGE": USAGE,
        "IAM": IAM,
        "CLOUDRESOURCEMANAGER": MANAGER,
        "CLOUDBILLING": BILLING,
        "COMPUTE": f"{COMPUTE}/compute/v1",
    }
    return {
        f"CLOUDSDK_API_ENDPOINT_OVERRIDES_{api}": f"{google.url}/{host}/"
        for api, host in hosts.items()
    }
