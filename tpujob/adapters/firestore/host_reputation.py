"""The port `Reputation` on Firestore, in the database of the store."""

from collections.abc import Sequence
from dataclasses import replace

from tpujob.adapters.firestore import records
from tpujob.adapters.firestore.calls import Docs, Firestore
from tpujob.adapters.firestore.records import Put, Remove
from tpujob.domain.failures import host_reputation
from tpujob.domain.model import Suspect


class FirestoreReputation:
    """Implements `ports.Reputation`. Raises as the store does."""

    def __init__(self, firestore: Firestore) -> None:
        self._db = firestore

    def accuse(
        self,
        physicals: Sequence[str],
        *,
        zone: str,
        weight: float,
        reason: str,
        op_id: str,
        at: float,
        owner: str,
    ) -> None:
        made = f"accusations/{records.digest(op_id)}"
        accused = {_path(physical): physical for physical in physicals}

        def plan(docs: Docs) -> tuple[None, list[Put | Remove]]:
            if docs[made]:
                return None, []
            puts: list[Put | Remove] = [Put(made, {"op": op_id})]
            for path, physical in accused.items():
                doc = docs[path]
                known = records.suspect(doc) if doc else Suspect(physical, zone, 0.0, at)
                known = replace(known, zone=zone or known.zone)
                more = host_reputation.accused(known, weight, reason, at, owner)
                puts.append(Put(path, records.suspect_fields(more)))
            return None, puts

        self._db.change(f"accuse {', '.join(physicals)}", [made, *accused], plan)

    def suspects(self) -> list[Suspect]:
        docs = self._db.select("list the suspects", "suspects")
        return host_reputation.worst_first(map(records.suspect, docs))

    def put(self, suspect: Suspect) -> None:
        put = Put(_path(suspect.physical), records.suspect_fields(suspect))
        self._db.change(f"pin {suspect.physical}", [], lambda _: (None, [put]))

    def remove(self, physical: str) -> None:
        self._db.remove(f"forget {physical}", [_path(physical)])


def _path(physical: str) -> str:
    return f"suspects/{records.digest(physical)}"
