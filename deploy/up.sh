#!/usr/bin/env bash
# Builds the image and runs it on Cloud Run; again for each new version. Needs deploy/setup.sh once before.
#
#   PROJECT=my-lab-4711 REGION=europe-west4 deploy/up.sh
#
# WAKE=always (when unset): one instance that looks after its jobs all the time. WAKE=called: none while nobody asks;
# Cloud Scheduler asks every minute. deploy/README.md has what each costs and does. USERS as for setup.sh.
# NETWORK and SUBNET (in REGION): the backend reaches hosts inside that network, for a context with `ssh: internal`.
# VPC_EGRESS=all-traffic: it reaches everything else that way, too; when unset, private-ranges-only.
# BASE: the image to build on, by its digest, such as python:3.11-slim@sha256:...; deploy/README.md says how to find it.
source "$(dirname "$0")/common.sh"
wake=${WAKE:-always}
egress=${VPC_EGRESS:-private-ranges-only}

case $wake in
  always) min=1 throttled=false only_called="" ;;
  called) min=0 throttled=true only_called=", --only-called" ;;
  *) echo "$0: WAKE is $wake: it can be always or called" >&2; exit 2 ;;
esac
case $egress in
  private-ranges-only | all-traffic) ;;
  *) echo "$0: VPC_EGRESS is $egress: it can be private-ranges-only or all-traffic" >&2; exit 2 ;;
esac
if [ -z "${BASE:-}" ]; then
  echo "$0: BASE is not set: the image is built on whatever python:3.11-slim is today (deploy/README.md)" >&2
elif [[ ! $BASE =~ ^[-a-z0-9_./:]+@sha256:[0-9a-f]{64}$ ]]; then
  echo "$0: BASE is $BASE: a tag can be moved; name a digest, as in python:3.11-slim@sha256:..." >&2
  exit 2
fi
interface=${NETWORK:+"\"network\": \"$NETWORK\""}
interface+=${SUBNET:+"${interface:+, }\"subnetwork\": \"$SUBNET\""}
if [[ ${NETWORK:-}${SUBNET:-} =~ [^-a-z0-9_./:] ]]; then
  echo "$0: NETWORK and SUBNET are names, such as default: '${NETWORK:-}', '${SUBNET:-}'" >&2
  exit 2
fi
if [ -z "$interface" ]; then
  if [ -n "${VPC_EGRESS:-}" ]; then need NETWORK "the network into which VPC_EGRESS leads"; fi
  network="/INTERFACE/d; /VPC_EGRESS/d"
else
  network="s|INTERFACE|{$interface}|; s|VPC_EGRESS|$egress|"
fi

version=$(sed -n 's/^__version__ = "\(.*\)"/\1/p' "$here/../tpujob/__init__.py")
image="$REGION-docker.pkg.dev/$PROJECT/tpujob/backend:$version-$(date -u +%Y%m%d%H%M%S)"
number=$(gc projects describe "$PROJECT" --format='value(projectNumber)')
url="https://tpujob-$number.$REGION.run.app"

# Every name that Cloud Run gives the service that is there. Besides $url that is one with a hash, which cannot be known
# before; it is `status.url`, which `gcloud run services proxy` asks for. The backend answers under no other name.
names() {
  local said
  said=$(gc run services describe tpujob --region="$REGION" --format='value(status.url,metadata.annotations)') || return
  echo "$url"
  grep -oE 'https://tpujob-[a-z0-9.-]+\.run\.app' <<<"$said" | grep -vxF "$url" | sort -u || true
}

gc builds submit "$here/.." --config="$here/cloudbuild.yaml" --substitutions="_IMAGE=$image${BASE:+,_BASE=$BASE}" \
  --service-account="projects/$PROJECT/serviceAccounts/$build"

filled=$(mktemp)
trap 'rm -f "$filled"' EXIT
replace() { # NAMES
  local arguments name
  arguments=""
  for name in $1; do arguments+="--url, \"$name\", "; done
  sed -e "s|ARGUMENTS|$arguments--tick-account, \"$tick\"$only_called|" -e "s|IMAGE|$image|" \
    -e "s|MIN_INSTANCES|$min|" -e "s|THROTTLED|$throttled|" -e "s|REGION|$REGION|" -e "s|PROJECT|$PROJECT|" \
    -e "$network" "$here/service.yaml" >"$filled"
  gc run services replace "$filled" --region="$REGION"
}
known=$url
if exists run services describe tpujob --region="$REGION"; then known=$(names); fi
replace "$known"
now=$(names)
if [ "$now" != "$known" ]; then replace "$now"; fi # after the first deployment of all

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
