"""Checks commands with gcloud's own parser and message classes. Runs under the Python of the Cloud SDK.

Reads one JSON line for each check, answers with one: the reason why gcloud would refuse it, or an empty string.
`{"folder": PATH, "words": [...]}` is a command; `{"field": {...}}` the body of a PATCH of a Firestore field.
"""

import io
import json
import os
import sys
from typing import Any

LIBRARY = sys.argv[1]
# instead of its own folder, which has an http.py
sys.path[:1] = [LIBRARY, os.path.join(LIBRARY, "third_party")]
sys.stderr = errors = io.StringIO()  # gcloud keeps the stream that it finds here

from googlecloudsdk import gcloud_main  # noqa: E402
from googlecloudsdk.api_lib.cloudbuild import cloudbuild_util, config  # noqa: E402
from googlecloudsdk.api_lib.util import apis, messages  # noqa: E402
from googlecloudsdk.command_lib.iam import iam_util  # noqa: E402
from googlecloudsdk.core import properties  # noqa: E402

parser = gcloud_main.CreateCLI([]).top_element._parser


def check_command(folder: str, words: list[str]) -> None:
    os.chdir(folder)
    properties.VALUES.PushInvocationValues()
    try:
        args = parser.parse_args(words)
        command = " ".join(args.command_path[1:])
        if args.IsKnownAndSpecified("condition") or args.IsKnownAndSpecified("condition_from_file"):
            iam_util.ValidateAndExtractCondition(args)
        if command == "run services replace":
            check_message("run", "Service", dict(args.FILE))
        if command in ("iam roles create", "iam roles update"):
            iam_util.ParseYamlToRole(args.file, apis.GetMessagesModule("iam", "v1").Role)
        if command == "monitoring policies create":
            with open(args.policy_from_file) as file:
                check_message("monitoring", "AlertPolicy", json.load(file), "v3")
        if command == "builds submit":
            config.LoadCloudbuildConfigFromPath(
                args.config, cloudbuild_util.GetMessagesModule(), params=args.substitutions
            )
    finally:
        properties.VALUES.PopInvocationValues()


def check_message(api: str, name: str, message: dict[str, Any], version: str = "v1") -> None:
    kind = getattr(apis.GetMessagesModule(api, version), name)
    messages.DictToMessageWithErrorCheck(message, kind)


for line in sys.stdin:
    request = json.loads(line)
    refusal = ""
    try:
        if "field" in request:
            check_message("firestore", "GoogleFirestoreAdminV1Field", request["field"])
        else:
            check_command(request["folder"], request["words"])
    except SystemExit:
        refusal = errors.getvalue() or "refused"
    except Exception as error:
        refusal = f"{type(error).__name__}: {error}"
    errors.truncate(errors.seek(0))
    print(json.dumps(refusal), flush=True)
