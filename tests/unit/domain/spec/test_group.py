"""Arrays and sweeps in a job file, and their elements."""

import json
import time
import tracemalloc

import pytest

from tpujob.domain.spec import JobSpec, dump, parse
from tpujob.domain.spec.elements import at_once, elements, longest, size, warnings
from tpujob.domain.spec.jobspec import load
from tpujob.errors import BadSpec

HEAD = """\
name: sweep
tpu: {type: v4-8}
run:
  command: train --lr {lr} --seed {seed} --n {index} ${lr} {other} {}
  env: {LR: "{lr}", TAG: "a {seed} b"}
"""
SWEEP = "matrix: {lr: [1e-3, 3e-4], seed: [0, 1, 2]}\nexclude: [{lr: 1e-3, seed: 2}]\nat_once: 2\n"
HUNDRED = "[" + ", ".join(map(str, range(100))) + "]"


def read(rest: str, head: str = HEAD) -> JobSpec:
    return load(head + rest, "job.yaml")


def test_a_matrix_makes_one_element_of_each_combination_the_first_key_slowest() -> None:
    spec = read(SWEEP)
    made = list(elements(spec))
    assert [tuple(element.params.values()) for element in made] == [
        ("1e-3", "0"),
        ("1e-3", "1"),
        ("3e-4", "0"),
        ("3e-4", "1"),
        ("3e-4", "2"),
    ]
    assert (size(spec), at_once(spec)) == (5, 2)
    last = made[-1].spec
    assert (last.name, last.is_group) == ("sweep-4", False)
    assert last.run.command == "train --lr 3e-4 --seed 2 --n 4 ${lr} {other} {}"
    assert last.run.env == {"LR": "3e-4", "TAG": "a 2 b"}
    assert [*elements(spec, 3, 2)] == made[3:]
    for written in (spec, last):
        assert parse(json.loads(json.dumps(dump(written)))) == written


def test_a_value_of_args_that_is_a_parameter_keeps_its_type() -> None:
    head = "name: s\ntpu: {type: v4-8}\nrun: {workload: mlp, args: {a: '{x}', b: '{x}!', c: '{index}'}}\n"
    spec = read("matrix: {x: [1, 0.5, true, text]}\n", head)
    args = [element.spec.run.args for element in elements(spec)]
    assert [a["a"] for a in args] == [1, 0.5, True, "text"]
    assert [a["b"] for a in args] == ["1!", "0.5!", "true!", "text!"]
    assert [a["c"] for a in args] == [0, 1, 2, 3]
    assert [type(a["a"]) for a in args] == [int, float, bool, str]


def test_values_are_texts_as_they_were_written() -> None:
    written = "[1e-5, 1.0e-05, 3E-4, 1_000, .5, 010, 0x10, on, True, 2026-11-28, 1:30, 12345678901234567890, 'null']"
    values = written.strip("[]").replace("'", "").split(", ")
    spec = read(f"matrix: {{lr: {written}}}\n")
    made = list(elements(spec))
    assert [element.params["lr"] for element in made] == values
    assert [element.spec.run.env["LR"] for element in made] == values
    assert [element.spec.run.command for element in made] == [
        f"train --lr {value} --seed {{seed}} --n {{index}} ${{lr}} {{other}} {{}}".replace(
            "{index}", str(index)
        )
        for index, value in enumerate(values)
    ]
    assert parse(json.loads(json.dumps(dump(spec)))) == spec


def test_exclude_names_the_same_text_or_else_the_same_number() -> None:
    def left(values: str, excluded: str) -> list[str]:
        spec = read(f"matrix: {{lr: [{values}]}}\nexclude: [{{lr: {excluded}}}]\n")
        return [element.params["lr"] for element in elements(spec)]

    assert left("1e-5, 0.1", "0.00001") == ["0.1"]
    assert left("'1.1', '1.10'", "1.10") == ["1.1"]
    assert left("1, true, x", "True") == ["1", "x"]
    with pytest.raises(BadSpec, match=r"the matrix has no value 2 of lr"):
        left("1, 1.5", "2")


def test_values_that_may_be_meant_as_several_words_are_warned_of() -> None:
    head = HEAD.split("run:", maxsplit=1)[0] + "run: {command: 'train {flags} \"{tag}\" {lr}'}\n"
    written = "matrix: {flags: ['--a 1 --b', ''], tag: ['', --c d], lr: [1, a b]}"
    assert warnings(read(written, head)) == [
        "{flags} is one word of the command, also with the value '--a 1 --b'; "
        "$TPUJOB_PARAM_FLAGS without quotes becomes several words, or none"
    ]


def test_a_value_that_cannot_stay_one_word_is_refused_with_its_place() -> None:
    head = "name: s\ntpu: {type: v4-8}\nrun:\n  command: bash -c 'echo {a}'\n"
    read("matrix: {a: [x, 1e-5]}", head)
    with pytest.raises(BadSpec) as error:
        read("matrix: {a: [x, x y]}", head)
    assert error.value.message == (
        "job.yaml:4: run.command: {a} stands where the value 'x y' cannot be kept as one word; "
        'write "$TPUJOB_PARAM_A" there'
    )


@pytest.mark.parametrize(
    ("written", "count", "limit"),
    [
        ("array: 100", 100, None),
        ("array: 0-99", 100, None),
        ("array: 0-99%8", 100, 8),
        ("array: {count: 100, at_once: 8}", 100, 8),
        ("array: 100\nat_once: 8", 100, 8),
    ],
)
def test_an_array_is_written_in_several_ways(written: str, count: int, limit: int | None) -> None:
    spec = read(written)
    assert (size(spec), at_once(spec)) == (count, limit)
    assert [element.spec.name for element in elements(spec, 98)] == ["sweep-98", "sweep-99"]


def test_names_in_braces_that_are_no_parameters_are_warned_of() -> None:
    assert warnings(read("matrix: {lr: [1, 2]}")) == [
        f"{{{name}}} stays as it is: the parameters are index, lr" for name in ("seed", "other")
    ]
    assert warnings(read("")) == [], "only a group has parameters"


def test_a_parameter_that_a_bundled_program_is_not_given_is_warned_of() -> None:
    head = "name: sweep\ntpu: {type: v4-8}\nrun: {workload: mlp, args: {steps: 9, lr: '{lr}'}}\n"
    written = "matrix: {lr: [1, 2], seed: [0, 1]}"
    assert warnings(read(written, head)) == [
        "seed changes nothing: write {seed} in the arguments of the program"
    ]
    own = head.replace("workload: mlp, args: {steps: 9, lr: '{lr}'}", "command: 'train {lr}'")
    assert warnings(read(written, own)) == [], "a program of one's own may read the environment"


def test_a_name_has_room_for_the_index() -> None:
    head = HEAD.replace("sweep", "a" * 38)
    with pytest.raises(BadSpec, match=r"job.yaml:1: name: must have at most 37 characters"):
        read("array: 100", head)
    read("array: 10", head)


def test_the_longest_element_shows_whether_all_may_be_so_long() -> None:
    head = HEAD.replace("train", "train " + "{lr}" * 5)
    with pytest.raises(BadSpec, match=r"run.command: must have at most 16,384 characters"):
        parse(dump(longest(read(f"matrix: {{lr: [{'x' * 4000}]}}", head))))


def test_ten_thousand_elements_come_one_by_one() -> None:
    spec = read(f"matrix: {{a: {HUNDRED}, b: {HUNDRED}}}\nexclude: [{{a: 3, b: 5}}]\n")
    tracemalloc.start()
    began = time.process_time()
    count = sum(1 for _ in elements(spec))
    took, peak = time.process_time() - began, tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert count == 9_999
    assert (took < 30, peak < 2**20) == (True, True)


def test_a_long_list_of_values_is_checked_at_once() -> None:
    began = time.process_time()
    with pytest.raises(BadSpec, match="more than"):
        parse({**dump(read("")), "matrix": {"seed": [*range(60_000)]}})
    assert time.process_time() - began < 5
