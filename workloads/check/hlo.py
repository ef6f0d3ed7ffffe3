"""Reads the text of a compiled program: computations, their instructions, and how often each is executed.

XLA's own counters take the body of a loop once. The text has what is needed to do better, but not the number of
iterations: that follows from the loop's condition, first value and step.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

_BITS = {"pred": 8, "s4": 4, "u4": 4, "token": 0, "opaque": 0}


@dataclass(frozen=True)
class Array:
    """An array of an instruction's result."""

    type: str  #: `f32`, `bf16`
    shape: tuple[int, ...]
    space: int  #: 0 is HBM; others are on the chip (VMEM, CMEM, scalars), 5 is the host

    @property
    def bytes(self) -> int:
        """The size in bytes, without the padding of the layout."""
        return math.prod(self.shape) * _bits(self.type) // 8


@dataclass(frozen=True)
class Instruction:
    name: str
    opcode: str
    results: tuple[Array, ...]  #: several: a tuple, nested ones flat
    operands: tuple[str, ...]
    arguments: str  #: the text between the parentheses: a constant's value, a parameter's number
    attributes: str  #: the text behind them

    def attribute(self, name: str) -> str:
        """Return the value of `name=VALUE`, up to the next comma outside of brackets; empty if there is none."""
        match = re.search(rf"(?:^|[ ,]){name}=", self.attributes)
        return _value(self.attributes, match.end()) if match else ""

    @property
    def called(self) -> str:
        """The computation of a fusion, a call or an asynchronous pair."""
        return (self.attribute("calls") or self.attribute("to_apply")).lstrip("%")


@dataclass
class Computation:
    name: str
    instructions: dict[str, Instruction] = field(default_factory=dict[str, Instruction])
    root: str = ""

    @cached_property
    def parameters(self) -> dict[int, Instruction]:
        """The parameter instructions by number."""
        return {int(i.arguments): i for i in self.instructions.values() if i.opcode == "parameter"}

    def behind(self, name: str) -> Instruction:
        """Return the instruction that makes this value, skipping copies and conversions."""
        instruction = self.instructions[name]
        while instruction.opcode in (
            "copy",
            "bitcast",
            "convert",
            "reshape",
            "copy-done",
            "copy-start",
        ):
            instruction = self.instructions[instruction.operands[0]]
        return instruction


@dataclass(frozen=True)
class Executed:
    """An instruction where it is executed."""

    instruction: Instruction
    computation: Computation
    times: int  #: in a step
    scheduled: bool  #: False: a part of a fusion, whose values stay on the chip


@dataclass
class Module:
    """A compiled program."""

    computations: dict[str, Computation]
    entry: str
    #: loops whose number of iterations could not be found; they were counted once
    unresolved: list[str] = field(default_factory=list[str])

    def executed(self) -> Iterator[Executed]:
        """Yield every instruction with the number of its executions, for all branches of a condition."""
        yield from self._in(self.computations[self.entry], 1, scheduled=True)

    def _in(self, computation: Computation, times: int, *, scheduled: bool) -> Iterator[Executed]:
        for instruction in computation.instructions.values():
            yield Executed(instruction, computation, times, scheduled)
            for called, calls, inner in self._calls(instruction, computation):
                below = self.computations[called]
                yield from self._in(below, times * calls, scheduled=scheduled and inner)

    def _calls(self, of: Instruction, within: Computation) -> Iterator[tuple[str, int, bool]]:
        """Yield the computations that an instruction executes, how often, and whether theirs are scheduled one by
        one."""
        if of.opcode == "while":
            yield of.attribute("body").lstrip("%"), self.trips(of, within), True
        elif of.opcode in ("fusion", "async-start"):
            yield of.called, 1, of.opcode == "async-start"
        elif of.opcode == "call":
            yield of.called, 1, True
        elif of.opcode == "conditional":
            branches = of.attribute("branch_computations").strip("{}").split(",")
            both = [of.attribute("true_computation"), of.attribute("false_computation")]
            for branch in (name.strip().lstrip("%") for name in (*branches, *both)):
                if branch:
                    yield branch, 1, True

    def trips(self, loop: Instruction, within: Computation) -> int:
        """Return the iterations of a loop `for (i = first; i < last; i += step)`; 1 for a loop of another form."""
        try:
            return self._trips(loop, within)
        except (KeyError, ValueError, IndexError):
            self.unresolved.append(loop.name)
            return 1

    def _trips(self, loop: Instruction, within: Computation) -> int:
        condition = self.computations[loop.attribute("condition").lstrip("%")]
        body = self.computations[loop.attribute("body").lstrip("%")]
        index, last, inclusive = self._limit(condition)
        first = self._constant(within.behind(within.behind(loop.operands[0]).operands[index]))
        step = self._step(body, index)
        return max(0, math.ceil((last + inclusive - first) / step))

    def _limit(self, condition: Computation) -> tuple[int, int, int]:
        """Return the counter's index in the loop's state, its limit, and 1 if the limit is included, else 0."""
        root = condition.behind(condition.root)
        inner, arguments = self._entered(root, condition)
        compare = inner.behind(inner.root) if inner is not condition else root
        if compare.opcode != "compare":
            raise ValueError(f"{compare.opcode} is no condition of a counted loop")
        direction = compare.attribute("direction")
        if direction not in ("LT", "LE", "GT", "GE"):
            raise ValueError(f"{direction} is no condition of a counted loop")
        sides = [self._outside(inner.behind(o), condition, arguments) for o in compare.operands]
        if direction in ("GT", "GE"):
            sides.reverse()
        counter, limit = sides
        return _index(counter), self._constant(limit), int(direction in ("LE", "GE"))

    def _step(self, body: Computation, index: int) -> int:
        """Return the step of the loop's counter."""
        update = body.behind(body.behind(body.root).operands[index])
        inner, arguments = self._entered(update, body)
        add = inner.behind(inner.root) if inner is not body else update
        if add.opcode != "add":
            raise ValueError(f"{add.opcode} is no step of a counted loop")
        sides = [self._outside(inner.behind(o), body, arguments) for o in add.operands]
        step = next(self._constant(side) for side in sides if side.opcode == "constant")
        if step <= 0:
            raise ValueError(f"{step} is no step of a counted loop")
        return step

    def _entered(
        self, instruction: Instruction, within: Computation
    ) -> tuple[Computation, dict[str, str]]:
        """Return a fusion's computation and the operands of its parameters; else the enclosing computation."""
        if instruction.opcode not in ("fusion", "call"):
            return within, {}
        inner = self.computations[instruction.called]
        return inner, {inner.parameters[i].name: o for i, o in enumerate(instruction.operands)}

    @staticmethod
    def _outside(of: Instruction, within: Computation, arguments: dict[str, str]) -> Instruction:
        return within.behind(arguments[of.name]) if of.name in arguments else of

    @staticmethod
    def _constant(instruction: Instruction) -> int:
        if instruction.opcode != "constant":
            raise ValueError(f"{instruction.name} is no constant")
        return int(instruction.arguments)


def parse(text: str) -> Module:
    """Return the module in a text of HLO. Raises ValueError if there is none."""
    computations: dict[str, Computation] = {}
    entry, current = "", None
    for line in _joined(text):
        if line.startswith(("%", "ENTRY ")) and line.endswith("{"):
            name = line.removeprefix("ENTRY ").split()[0].lstrip("%")
            current = computations.setdefault(name, Computation(name))
            entry = name if line.startswith("ENTRY ") else entry
        elif line == "}":
            current = None
        elif current is not None and " = " in line:
            instruction = _instruction(line)
            current.instructions[instruction.name] = instruction
            if line.lstrip().startswith("ROOT "):
                current.root = instruction.name
    if not entry:
        raise ValueError("the text of the compiled program has no entry")
    return Module(computations, entry)


def _joined(text: str) -> Iterator[str]:
    """The lines, an instruction on one: what people say of a kernel may have line ends."""
    waiting = ""
    for line in text.splitlines():
        starts = line.startswith(("  %", "  ROOT ", "%", "ENTRY ")) or line == "}"
        if starts and waiting:
            yield waiting
            waiting = ""
        waiting += line
    yield waiting


_ARRAY = re.compile(r"([a-z][a-z0-9]*)\[([0-9,<= ]*)\](\{[^{}]*\})?")
_NAMED = re.compile(r"%([\w.-]+)")
_SPACE = re.compile(r"S\(([0-9]+)\)")
_COMMENT = re.compile(r"/\*.*?\*/")


def _instruction(line: str) -> Instruction:
    left, _, right = _COMMENT.sub("", line).strip().removeprefix("ROOT ").partition(" = ")
    end = _closed(right, 0) if right.startswith("(") else right.index(" ")
    opening = right.index("(", end)
    closing = _closed(right, opening)
    arguments = right[opening + 1 : closing - 1]
    return Instruction(
        name=left.lstrip("%"),
        opcode=right[end:opening].strip(),
        results=tuple(_array(match) for match in _ARRAY.finditer(right[:end])),
        operands=tuple(_NAMED.findall(arguments)),
        arguments=arguments,
        attributes=right[closing:].lstrip(", "),
    )


def _array(match: re.Match[str]) -> Array:
    space = _SPACE.search(match[3] or "")
    sizes = [int(size.replace("<=", "")) for size in match[2].split(",") if size.strip()]
    return Array(match[1], tuple(sizes), int(space[1]) if space else 0)


def _bits(type: str) -> int:
    if type in _BITS:
        return _BITS[type]
    digits = re.search(r"[0-9]+", type)
    return int(digits[0]) if digits else 0


def _closed(text: str, opening: int) -> int:
    """Return the index after the bracket that closes the one at `opening`."""
    depth = 0
    for place in range(opening, len(text)):
        depth += (text[place] in "({[") - (text[place] in ")}]")
        if depth == 0:
            return place + 1
    raise ValueError(f"no end of {text[opening : opening + 60]!r}")


def _value(text: str, start: int) -> str:
    """Return the text from `start` to the next comma outside of brackets and quotes."""
    depth, quoted = 0, False
    for place in range(start, len(text)):
        quoted ^= text[place] == '"'
        depth += 0 if quoted else (text[place] in "({[") - (text[place] in ")}]")
        if depth == 0 and not quoted and text[place] == ",":
            return text[start:place].strip()
    return text[start:].strip()


def _index(counter: Instruction) -> int:
    if counter.opcode != "get-tuple-element":
        raise ValueError(f"{counter.name} is no part of a loop's state")
    return int(counter.attribute("index"))
