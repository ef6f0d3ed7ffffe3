#!/usr/bin/env bash
# Gives a person access: through the proxy in front of the backend, and on its list of members. Safe to repeat, also with
# another role. Run it as an admin who has signed in (`tpujob login`), with the deployed backend as current context.
#
#   PROJECT=my-lab-4711 REGION=europe-west4 CONTEXT_FILE=lab.yaml deploy/join.sh ada@example.org submitter
#
# ROLE is viewer, submitter or admin. ADDRESS is a person's, or a service account's. PROGRAMS=own: their programs run as
# an account of their own, which can reach none but their objects (deploy/README.md says what that takes).
source "$(dirname "$0")/common.sh"
address=${1:-} role=${2:-}
need CONTEXT_FILE "the context's file, as for setup.sh"
case $role in
  viewer | submitter | admin) ;;
  *) echo "$0: ROLE is '$role': it can be viewer, submitter or admin (deploy/join.sh ADDRESS ROLE)" >&2; exit 2 ;;
esac
member=$(member_of "$address")
door=$(door)

admit "$door" "$member"
tpujob members add "$address" "$role"

if [ "${PROGRAMS:-shared}" = own ]; then
  account=$(programs_of "$address")
  name="$account@$PROJECT.iam.gserviceaccount.com"
  if ! exists iam service-accounts describe "$name"; then
    gc iam service-accounts create "$account" --display-name="programs of $address"
  fi
  programs "$address" "serviceAccount:$name" gc
  echo "Programs of $address can run as $name. Write into $CONTEXT_FILE, then setup.sh and up.sh:"
  echo "  service_accounts:"
  echo "    $address: $name"
fi
line="tpujob use https://tpujob-NUMBER.$REGION.run.app ..."
echo "$address is a member now, as $role. up.sh printed the line that they type: $line"
