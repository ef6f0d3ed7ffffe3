#!/usr/bin/env bash
# Sends all requests to an earlier revision of the backend, or to the newest one. The next up.sh sends them to its own.
# deploy/README.md says which revisions can read what a newer one has stored.
#
#   PROJECT=my-lab-4711 REGION=europe-west4 deploy/back.sh                      # lists the revisions
#   PROJECT=my-lab-4711 REGION=europe-west4 deploy/back.sh tpujob-00007-abc     # or `latest`
source "$(dirname "$0")/common.sh"
revision=${1:-}
services=tpujob
if exists run services describe tpujob-ticks --region="$REGION"; then services="tpujob tpujob-ticks"; fi
case $revision in
  "") for name in $services; do gc run revisions list --service="$name" --region="$REGION"; done ;;
  latest) for name in $services; do gc run services update-traffic "$name" --region="$REGION" --to-latest; done ;;
  tpujob-[0-9]* | tpujob-ticks-[0-9]*)
    gc run services update-traffic "${revision%-*-*}" --region="$REGION" --to-revisions="$revision=100"
    for name in $services; do
      if [ "$name" != "${revision%-*-*}" ]; then
        echo "$name still runs what it ran: name a revision of it, too (deploy/back.sh lists them)" >&2
      fi
    done
    ;;
  *)
    echo "$0: '$revision' is neither a revision, such as tpujob-00007-abc, nor latest" >&2
    exit 2
    ;;
esac
