#!/usr/bin/env bash
# The indexes of firestore.indexes.json, made one after the other in the background; those that are there stay. Fields
# that hold whole records get none: each would cost a write, and a field of more than 1,500 bytes can have none.
#   PROJECT=my-lab-4711 REGION=europe-west4 deploy/indexes.sh "(default)"
source "$(dirname "$0")/common.sh"
database=${1:-(default)}

fields() { # one line of flags for each index
  python3 - "$here/firestore.indexes.json" <<'PY'
import json, sys

for index in json.load(open(sys.argv[1]))["indexes"]:
    fields = [f"--field-config=field-path={f['fieldPath']},order={f['order'].lower()}" for f in index["fields"]]
    print(f"--collection-group={index['collectionGroup']}", *fields)
PY
}

fields | while read -r -a flags; do
  said=$(gc firestore indexes composite create --database="$database" --query-scope=collection "${flags[@]}" \
    --async --format=none </dev/null 2>&1) || {
    # the only refusal that is none
    grep -q "already exists" <<<"$said" || { echo "$said" >&2; exit 1; }
  }
done

of_fields() { # one line for each field whose own indexes are not the usual ones
  python3 - "$here/firestore.indexes.json" <<'PY'
import json, sys

for field in json.load(open(sys.argv[1]))["fieldOverrides"]:
    scopes = {"COLLECTION": "collection", "COLLECTION_GROUP": "collection-group"}
    own = [f"--index=order={i['order'].lower()},query-scope={scopes[i['queryScope']]}" for i in field["indexes"]]
    print(field["fieldPath"], f"--collection-group={field['collectionGroup']}", *(own or ["--disable-indexes"]))
PY
}

of_fields | while read -r -a field; do
  gc firestore indexes fields update "${field[@]}" --database="$database" --async --format=none </dev/null
done
