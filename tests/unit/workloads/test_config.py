"""Flags: every way to write them, and one clear line for each way to get them wrong."""

import pytest
from pydantic import Field

from tpujob.contract import Exit
from workloads.frame.config import TrainConfig, parse
from workloads.mlp import MlpConfig


class _Switched(TrainConfig):
    augment: bool = Field(True, description="turn rows a little; 50% of them")


@pytest.mark.parametrize(
    "arguments",
    [
        ["--checkpoint-every=20", "--hidden=64,32"],
        ["--checkpoint-every=20", "--hidden=[64, 32]"],
        ["--checkpoint-every", "20", "--hidden", "64 32"],
    ],
)
def test_flags_take_every_form_of_a_list(arguments: list[str]) -> None:
    config = parse(MlpConfig, "mlp", arguments)
    assert config == MlpConfig(checkpoint_every=20, hidden=(64, 32))


def test_a_boolean_has_a_flag_for_each_value() -> None:
    assert parse(_Switched, "p", []).augment is True
    assert parse(_Switched, "p", ["--no-augment"]).augment is False
    assert parse(_Switched, "p", ["--augment"]).augment is True


@pytest.mark.parametrize(
    ("argument", "line"),
    [
        ("--stepz=3", "mlp: no such flag: --stepz; did you mean --steps?"),
        ("--log_every=3", "mlp: no such flag: --log_every; did you mean --log-every?"),
        ("--xyzzy=3", "mlp: no such flag: --xyzzy; --help lists the flags"),
        ("20", "mlp: no such flag: 20; --help lists the flags"),
        ("--steps=0", "mlp: --steps=0: Input should be greater than or equal to 1"),
        (
            "--steps=ten",
            "mlp: --steps=ten: Input should be a valid integer, unable to parse string as an integer",
        ),
        ("--lr=nan", "mlp: --lr=nan: Input should be a finite number"),
        ("--dataset=mnist", "mlp: --dataset=mnist: Input should be 'digits' or 'synthetic'"),
        ("--hidden=8,0", "mlp: --hidden=0: Input should be greater than or equal to 1"),
        ("--steps", "mlp: argument --steps: expected one argument"),
    ],
)
def test_an_invalid_value_is_refused_in_one_line(
    argument: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(MlpConfig, "mlp", [argument])
    assert ended.value.code == Exit.CONFIG
    assert capsys.readouterr().err == line + "\n"


def test_help_names_every_field(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(_Switched, "p", ["--help"])
    text = capsys.readouterr().out
    for name in _Switched.model_fields:
        assert "--" + name.replace("_", "-") in text
    assert "50% of them" in text
