from collections.abc import Iterator

import pytest

from tests.support.stores import in_memory
from tests.unit.notify.rig import Rig
from tpujob.ports import Store


@pytest.fixture
def store() -> Iterator[Store]:
    made = in_memory()
    yield made
    made.close()


@pytest.fixture
def rig(store: Store) -> Rig:
    made = Rig(store)
    made.run(1)
    return made
