"""Files that are no job file: each gets one clear error, with its line, and hostile ones are given up early."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpujob.domain.spec import jobspec, yaml
from tpujob.errors import BadSpec


def refusal(text: str) -> str:
    with pytest.raises(BadSpec) as error:
        yaml.load(text, "job.yaml")
    return error.value.message


def bomb() -> str:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]"
        for old, new in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    return "\n".join(lines)


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "name: a\ntpu:\n\ttype: v4-8\n",
            "job.yaml:3: a tab in the indentation; indent with spaces",
        ),
        ("name: a\ntpu:\n  type: v4-8\n\tzones: []\n", "job.yaml:4: a tab in the indentation"),
        ("name: a\nname: b\n", "job.yaml:2: name: given twice, first in line 1"),
        ("tpu:\n  type: a\n  type: b\n", "job.yaml:3: tpu.type: given twice, first in line 2"),
        ("", "job.yaml: the file is empty"),
        ("# only words\n---\n", "job.yaml: the file is empty"),
        ("name: a\n---\nname: b\n", "job.yaml:2: a second document begins here"),
        ("- a\n- b\n", "job.yaml:1: must hold a mapping of keys to values, not a list"),
        ("hello", "job.yaml:1: must hold a mapping of keys to values, not the text 'hello'"),
        ("a: [b\nc: d\n", "job.yaml:2: not valid YAML"),
        ("a: 'b\n", "not valid YAML"),
        ("a: *b\n", "job.yaml:1: the alias *b stands for nothing above"),
        ("a: &a [*a]\n", "the alias *a stands for nothing above"),
        ("a: !!python/object:os.system x\n", "job.yaml:1: tags (`!…`) are not allowed"),
        ("? [a]\n: b\n", "job.yaml:1: a key must be plain text"),
        ("a: b\nc: \x07\n", "job.yaml:2: the character U+0007 is not allowed"),
        ("a: b\0\n", "job.yaml:1: the character U+0000 is not allowed"),
        ("a: " + "9" * 5000, "job.yaml:1: the number is too large"),
        (
            bomb(),
            "job.yaml:4: with its aliases written out, the file holds more than 10,000 values",
        ),
        ("a: " + "[" * 200_000, "job.yaml:1: nested more than 12 levels deep"),
        ("{a: " * 60_000, "job.yaml:1: nested more than 12 levels deep"),
        ("a: [" + "x," * 100_000 + "]", "job.yaml:1: the file holds more than 10,000 values"),
        ("a: " + "x" * 300_000, "job.yaml: is longer than 256 KiB"),
    ],
)
def test_an_invalid_job_file_gets_one_clear_error(text: str, error: str) -> None:
    message = refusal(text)
    assert error in message
    assert len(message) < 300
    assert "\n" not in message


def test_a_pattern_in_double_quotes_is_answered_with_single_ones() -> None:
    with pytest.raises(BadSpec, match=r"x\.yaml:1: not valid YAML") as raised:
        yaml.load('watch: {progress: "step (\\d+)"}', source="x.yaml")
    assert "single quotes" in raised.value.hint


def test_keys_and_values_have_their_lines() -> None:
    document = yaml.load("a:\n  b: [1,\n    2]\n\n  c: &x {d: 1}\ne: *x\n", "job.yaml")
    assert document.data == {"a": {"b": [1, 2], "c": {"d": 1}}, "e": {"d": 1}}
    assert document.line(("a", "b")) == 2
    assert document.line(("a", "b", 1)) == 3
    assert document.line(("a", "c", "d")) == 5
    assert document.line(("a", "c", "missing", 7)) == 5, "the nearest part around it"
    assert document.line(("e", "d")) == 6, "where the alias is used"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-3", 0.001),
        ("1.5", 1.5),
        (".5", 0.5),
        ("-3", -3),
        ("0x10", 16),
        ("0o17", 15),
        ("true", True),
        ("~", None),
        ("-.inf", float("-inf")),
        # In YAML 1.1 these are a boolean, a number in base 60, a number, a date, an octal number.
        ("no", "no"),
        ("12:30", "12:30"),
        ("1_000", "1_000"),
        ("2026-12-01", "2026-12-01"),
        ("007", "007"),
        ("1e", "1e"),
        ("v4-8", "v4-8"),
    ],
)
def test_plain_scalars_follow_yaml_1_2(text: str, value: object) -> None:
    plain = yaml.load(f"a: {text}", "job.yaml").data["a"]
    assert (plain, type(plain)) == (value, type(value))
    quoted = yaml.load(f"a: '{text}'", "job.yaml").data["a"]
    assert quoted == text


def test_a_tab_inside_a_block_of_text_is_the_users_own() -> None:
    text = "a: |\n  cat <<-EOF\n  \tindented\n  EOF\n"
    assert yaml.load(text, "job.yaml").data["a"] == "cat <<-EOF\n\tindented\nEOF\n"


def test_a_byte_order_mark_and_windows_line_ends_are_tolerated() -> None:
    for end in ("\n", "\r\n"):
        text = f"\ufeffname: a{end}tpu: {{type: v4-8}}{end}run: {{command: x}}{end}"
        assert jobspec.load(text, "x").name == "a"


@given(st.text(alphabet=st.sampled_from("ab:-[]{}&*!|>'\"#?,% \n\t\\~@`0"), max_size=60))
def test_any_text_is_read_or_refused_with_its_place(text: str) -> None:
    try:
        document = yaml.load(text, "job.yaml")
    except BadSpec as error:
        refused = error.message
    else:
        refused = ""
        assert isinstance(document.data, dict)
    assert not refused or refused.startswith("job.yaml:")
