#!/usr/bin/env bash
# Builds the image and runs it on Cloud Run; again for each new version. Needs deploy/setup.sh once before.
#
#   PROJECT=my-lab-4711 REGION=europe-west4 deploy/up.sh
#
# WAKE=always (when unset): one instance that looks after its jobs all the time. WAKE=called: none while nobody asks;
# Cloud Scheduler asks every minute. deploy/README.md has what each costs and does. USERS as for setup.sh.
source "$(dirname "$0")/common.sh"
wake=${WAKE:-always}

case $wake in
  always) min=1 throttled=false only_called="" ;;
  called) min=0 throttled=true only_called=", --only-called" ;;
  *) echo "$0: WAKE is $wake: it can be always or called" >&2; exit 2 ;;
esac

version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$here/../tpujob/__init__.py")
image="$REGION-docker.pkg.dev/$PROJECT/tpujob/backend:$version-$(date -u +%Y%m%d%H%M%S)"
number=$(gc projects describe "$PROJECT" --format='value(projectNumber)')
url="https://tpujob-$number.$REGION.run.app"

gc builds submit "$here/.." --config="$here/cloudbuild.yaml" --substitutions="_IMAGE=$image"

filled=$(mktemp)
trap 'rm -f "$filled"' EXIT
sed -e "s|ARGUMENTS|--url, \"$url\", --tick-account, \"$tick\"$only_called|" -e "s|IMAGE|$image|" \
  -e "s|MIN_INSTANCES|$min|" -e "s|THROTTLED|$throttled|" -e "s|REGION|$REGION|" -e "s|PROJECT|$PROJECT|" \
  "$here/service.yaml" >"$filled"
gc run services replace "$filled" --region="$REGION"

invoke() {
  gc run services add-iam-policy-binding tpujob --region="$REGION" --member="$1" --role=roles/run.invoker --format=none
}
for user in ${USERS:-}; do
  invoke "$user"
done

schedule() { # NAME CRON PATH
  local verb=create
  if exists scheduler jobs describe "$1" --location="$REGION"; then verb=update; fi
  gc scheduler jobs "$verb" http "$1" --location="$REGION" --schedule="$2" --uri="$url$3" --http-method=post \
    --oidc-service-account-email="$tick" --oidc-token-audience="$url" --attempt-deadline=120s --format=none
}
if [ "$wake" = called ]; then
  invoke "serviceAccount:$tick"
  schedule tpujob-tick "* * * * *" /v1/tick
  schedule tpujob-sweep "*/30 * * * *" "/v1/tick?sweep=true"
else
  for name in tpujob-tick tpujob-sweep; do
    if exists scheduler jobs describe "$name" --location="$REGION"; then
      gc scheduler jobs delete "$name" --location="$REGION"
    fi
  done
fi
echo "The backend is at $url. Whoever may use it types, in a terminal that stays open:"
echo "  gcloud run services proxy tpujob --project=$PROJECT --region=$REGION --port=8087"
