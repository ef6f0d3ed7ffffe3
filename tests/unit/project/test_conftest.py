"""Promises of `conftest.py` and of pytest's settings to every test."""

import random
import threading

from hypothesis import given
from hypothesis import strategies as st


def _beside_another_thread(drawn: int) -> int:
    thread = threading.Thread(target=random.random)
    thread.start()
    thread.join()
    return drawn


@given(st.sets(st.integers(0, 9).map(_beside_another_thread)))
def test_examples_may_be_drawn_while_a_thread_uses_the_random_module(numbers: set[int]) -> None:
    assert numbers <= set(range(10))
