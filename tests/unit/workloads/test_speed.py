"""`tests.bench.speed` with a model of nothing: what is counted, and that each row is measured."""

import pytest

from tests.bench import speed


def test_a_token_of_the_llama_costs_what_its_weights_and_half_its_scores_cost() -> None:
    assert speed.LLAMA.flops_per_token(2048) == pytest.approx(7.82e9, rel=0.001)


@pytest.mark.slow
def test_each_row_is_measured(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(speed, "peak", lambda kind: 989e12)
    speed.main(["--tiny"])
    products, *llamas, images = capsys.readouterr().out.splitlines()
    assert "of 989" in products
    assert [line.count("tokens/s") for line in llamas] == [1, 1]
    assert "images/s" in images
