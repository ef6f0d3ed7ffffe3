#!/usr/bin/env bash
# Removes a person: afterwards they are not a member, may not call the backend, and have no account for programs. Their
# jobs continue, and their objects are kept; `tpujob list --user ADDRESS` shows the jobs. Safe to repeat.
#
#   PROJECT=my-lab-4711 REGION=europe-west4 CONTEXT_FILE=lab.yaml deploy/leave.sh ada@example.org
#
# The list of members comes first, as it counts at the next request; IAM needs minutes.
source "$(dirname "$0")/common.sh"
address=${1:-}
need CONTEXT_FILE "the context's file, as for setup.sh"
member=$(member_of "$address")

tpujob members remove "$address" || {
  # a person who is not a member any more may still have the other rights
  [ $? = 3 ] || exit 1
}
unbind run services add-iam-policy-binding tpujob --region="$REGION" --member="$member" --role=roles/run.invoker || true
unbind beta iap web add-iam-policy-binding --resource-type=cloud-run --service=tpujob --region="$REGION" \
  --member="$member" --role=roles/iap.httpsResourceAccessor || true

account="$(programs_of "$address")@$PROJECT.iam.gserviceaccount.com"
if exists iam service-accounts describe "$account"; then
  people=$kept
  programs "$address" "serviceAccount:$account" unbind || true
  if [ "$kept" != "$people" ]; then
    echo "$0: some bindings of $account could not be removed. The account is deleted, so they grant nothing." >&2
    kept=$people
  fi
  gc iam service-accounts delete "$account"
fi
if [ -n "$kept" ]; then
  printf '%s: %s is not a member any more, but some of their rights could not be removed:\n%s%s\n' "$0" "$address" \
    "$kept" "Run the same command again." >&2
  exit 1
fi
echo "$address has nothing here any more. A token that they hold is refused from now on."
