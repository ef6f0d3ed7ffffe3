#!/usr/bin/env bash
# Takes away what up.sh and setup.sh made, but for what holds jobs: the database and the buckets stay.
# Jobs that still run go on, are billed, and have nobody who looks after them: end them first (`tpujob list`).
#
#   PROJECT=my-lab-4711 REGION=europe-west4 YES=1 deploy/remove.sh
source "$(dirname "$0")/common.sh"
need YES "YES=1 says that no job runs any more"

gone() { # KIND NAME [FLAG]: delete it if it is there
  local kind=$1
  shift
  # shellcheck disable=SC2086  # a kind is two words
  if exists $kind describe "$@"; then gc $kind delete "$@"; fi
}

for name in tpujob-tick tpujob-sweep; do gone "scheduler jobs" "$name" --location="$REGION"; done
for name in tpujob tpujob-ticks; do gone "run services" "$name" --region="$REGION"; done
gone "artifacts repositories" tpujob --location="$REGION"
for name in tpujob-token tpujob-context; do gone secrets "$name"; done
# what users have set for their jobs
for name in $(gc secrets list --filter='labels.tpujob-user:*' --format='value(name.basename())'); do
  gc secrets delete "$name"
done
for account in "$backend" "$vm" "$tick" "$build"; do gone "iam service-accounts" "$account"; done
for role in tpujobBackend tpujobKeys; do
  if [ "$(role_deleted "$role")" = False ]; then gc iam roles delete "$role"; fi
done
