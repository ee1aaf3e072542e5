"""A column answers as a list does, whatever it grew out of and whoever has to vouch for it."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mmapstore import columns
from mmapstore.columns import Column

#: bytes of a block here: few enough for short columns to have many
BLOCK_NBYTES = 32
KINDS = ("<u8", "<i8", "<u4")


class Witness:
    """A guard whose values are all wrong until they are proven, a block at a time."""

    def __init__(self, values: list[int], kind: str) -> None:
        self.right = np.array(values, kind)
        # descending, so that no search in it can come out right by chance
        self.memory = np.arange(len(values), 0, -1).astype(kind) + 10**6
        self.per_block = BLOCK_NBYTES // self.right.itemsize
        self.asked: list[tuple[int, int]] = []

    def proven(self, start: int, stop: int) -> Any:
        assert 0 <= start <= stop <= len(self.right)
        self.asked.append((start, stop))
        if start < stop:
            low = start // self.per_block * self.per_block
            high = -(-stop // self.per_block) * self.per_block
            self.memory[low:high] = self.right[low:high]
        shown = self.memory.view()
        shown.flags.writeable = False
        return shown

    def blocks(self) -> set[int]:
        """Return the blocks that were asked for since the last time."""
        asked, self.asked = self.asked, []
        return {index // self.per_block for low, high in asked for index in range(low, high)}


def guarded(values: list[int], kind: str = "<u8") -> tuple[Column, Witness]:
    witness = Witness(values, kind)
    return Column(witness.memory, witness), witness


@pytest.fixture(autouse=True, scope="module")
def short_blocks_and_tails() -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(columns, "BLOCK_NBYTES", BLOCK_NBYTES)
        patch.setattr(columns, "_LEAST_ROOM", 4)
        yield


ascending = st.lists(st.integers(0, 60), max_size=40).map(sorted)


@st.composite
def families(draw: st.DrawFn) -> list[tuple[int, list[int]]]:
    """Draw which column each next one grows out of, and by what; the first is given."""
    family = [(0, draw(ascending))]
    ends = [max(family[0][1], default=0)]
    for _ in range(draw(st.integers(0, 8))):
        parent = draw(st.integers(0, len(family) - 1))
        steps = draw(st.lists(st.integers(0, 3), max_size=9))
        added = np.cumsum([ends[parent], *steps])[1:].tolist()
        family.append((parent, added))
        ends.append(added[-1] if added else ends[parent])
    return family


def check(column: Column, model: list[int], kind: str) -> None:
    assert len(column) == len(model)
    count = len(model)
    whole = column.whole()
    assert whole.tolist() == model
    parts = [column.part(low, high) for low in range(count + 1) for high in range(low, count + 1)]
    assert [part.tolist() for part in parts] == [
        model[low:high] for low in range(count + 1) for high in range(low, count + 1)
    ]
    for values in (whole, *parts):
        assert values.dtype == np.dtype(kind)
        assert not values.flags.writeable
    found = [column.at(index) for index in range(count)]
    assert found == model
    assert all(type(value) is int for value in found)
    for value in {0, 61, *model, *(value + 1 for value in model)}:
        assert column.search(value) == column.search(value, "left") == bisect_left(model, value)
        assert column.search(value, "right") == bisect_right(model, value)


@pytest.mark.parametrize("kind", KINDS)
@given(family=families(), proving=st.booleans())
@example(family=[(0, []), (0, [1]), (0, [2]), (1, [3])], proving=False)
@example(family=[(0, [1]), (0, [2]), (0, [3]), (1, [4] * 9), (1, [5])], proving=True)
@example(family=[(0, [7] * 9), (0, [7] * 9), (1, [7])], proving=True)
def test_every_column_of_a_family_is_a_list(
    kind: str, family: list[tuple[int, list[int]]], proving: bool
) -> None:
    (_, first), *rest = family
    column = guarded(first, kind)[0] if proving else Column(np.array(first, kind))
    made = [(column, first)]
    held = []
    for parent, added in rest:
        old, model = made[parent]
        # as a scan gives them: signed, and for offsets of the same width
        grown = old.grown(np.array(added, "<u4" if kind == "<u4" else "<i8"))
        made.append((grown, model + added))
        held.append((grown.part(0, len(grown)), model + added))
        held.append((grown.part(len(model), len(grown)), added))
    # what was handed out stays what it was, and so does every column whatever grew from it
    assert all(part.tolist() == model for part, model in held)
    for column, model in made:
        check(column, model, kind)


def test_nothing_more_is_the_same_column() -> None:
    for column in (Column(np.array([1], "<u8")), guarded([1])[0], Column(np.zeros(0, "<u8"))):
        assert column.grown(np.zeros(0, "<i8")) is column


def test_values_of_every_size_are_found() -> None:
    """A search in unsigned values compares as integers do, not as floats."""
    top = 2**64 - 1
    values = [0, 2**53, 2**53 + 1, 2**63 - 1, 2**63, top - 1, top]
    for column in (Column(np.array(values, "<u8")), guarded(values)[0]):
        for index, value in enumerate(values):
            assert column.search(value) == index
            assert column.search(value, "right") == index + 1
            assert column.at(index) == value


# -- memory ---------------------------------------------------------------------------


def test_growth_copies_none_of_what_is_there() -> None:
    values = np.arange(1000, dtype="<u8")
    column = Column(values)
    assert column.whole() is column.whole()
    assert np.shares_memory(column.whole(), values)
    for number in range(1000, 1100):
        column = column.grown(np.array([number]))
        assert np.shares_memory(column.part(0, 1000), values)
    assert column.whole().tolist() == list(range(1100))
    # joined once
    assert column.whole() is column.whole()


def test_successors_share_a_tail_and_a_second_one_has_its_own() -> None:
    base = Column(np.array([1], "<u8"))
    one = base.grown(np.array([2]))
    longer = one.grown(np.array([3]))
    other = one.grown(np.array([4]))
    assert np.shares_memory(one.part(1, 2), longer.part(1, 2))
    assert not np.shares_memory(one.part(1, 2), other.part(1, 2))
    # each goes on by itself
    assert longer.grown(np.array([5])).whole().tolist() == [1, 2, 3, 5]
    assert other.grown(np.array([6])).whole().tolist() == [1, 2, 4, 6]
    assert [each.whole().tolist() for each in (base, one, longer, other)] == [
        [1],
        [1, 2],
        [1, 2, 3],
        [1, 2, 4],
    ]


def test_a_tail_moves_ever_more_seldom() -> None:
    column = Column(np.array([0], "<u8"))
    column = column.grown(np.array([1]))
    moves = 0
    for number in range(2, 2000):
        before = column.part(1, 2)
        column = column.grown(np.array([number]))
        moves += not np.shares_memory(before, column.part(1, 2))
    assert 0 < moves <= math.log2(2000)


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_that_is_handed_out_can_be_written_to(kind: str) -> None:
    plain = Column(np.arange(9).astype(kind))
    for column in (plain, guarded(list(range(9)), kind)[0]):
        grown = column.grown(np.array([9, 10], "<u4" if kind == "<u4" else "<i8"))
        for values in (
            column.whole(),
            column.part(2, 4),
            grown.whole(),
            grown.part(2, 4),
            grown.part(9, 11),
            grown.part(8, 10),
        ):
            with pytest.raises(ValueError, match="read-only"):
                values[0] = 7


def test_an_array_that_is_given_keeps_its_own_flags() -> None:
    values = np.arange(3, dtype="<u8")
    Column(values)
    assert values.flags.writeable


# -- guards ---------------------------------------------------------------------------

MODEL = [3 * number for number in range(101)]
PER_BLOCK = BLOCK_NBYTES // 8


@given(edges=st.tuples(st.integers(0, 101), st.integers(0, 101)))
@example(edges=(0, 4))
@example(edges=(4, 8))
@example(edges=(3, 5))
@example(edges=(100, 101))
def test_a_part_asks_for_its_own_blocks(edges: tuple[int, int]) -> None:
    low, high = sorted(edges)
    column, witness = guarded(MODEL)
    assert witness.blocks() == set()
    assert column.part(low, high).tolist() == MODEL[low:high]
    assert witness.asked == [(low, high)]
    assert witness.blocks() == {index // PER_BLOCK for index in range(low, high)}


def test_one_value_asks_for_one_block() -> None:
    column, witness = guarded(MODEL)
    for index in (0, 3, 4, 100):
        assert column.at(index) == MODEL[index]
        assert witness.asked == [(index, index + 1)]
        assert witness.blocks() == {index // PER_BLOCK}


@pytest.mark.parametrize("side", ["left", "right"])
@given(value=st.integers(0, 3 * 101 + 2))
def test_a_search_asks_for_few_blocks(side: str, value: int) -> None:
    column, witness = guarded(MODEL)
    bisect = bisect_left if side == "left" else bisect_right
    assert column.search(value, side) == bisect(MODEL, value)
    block_count = -(-len(MODEL) // PER_BLOCK)
    assert len(witness.blocks()) <= math.ceil(math.log2(block_count)) + 1


def test_no_guard_is_asked_about_a_tail() -> None:
    base, witness = guarded(MODEL)
    column = base.grown(np.array([303, 306, 306]))
    assert witness.asked == []
    assert column.part(101, 104).tolist() == [303, 306, 306]
    assert column.part(102, 102).tolist() == []
    assert (column.at(101), column.at(103)) == (303, 306)
    assert witness.asked == []
    assert column.part(100, 103).tolist() == [300, 303, 306]
    assert witness.asked == [(100, 101)]
    witness.asked.clear()
    # that a value is behind all of them is seen by the last one
    assert (column.search(306), column.search(306, "right")) == (102, 104)
    assert witness.blocks() == {100 // PER_BLOCK}
    # of two that grow, both ask the same guard
    assert base.grown(np.array([1])).part(0, 1).tolist() == [0]
    assert witness.asked == [(0, 1)]


def test_what_a_guard_replaces_is_what_is_handed_out_from_then_on() -> None:
    column, witness = guarded(MODEL)
    grown = column.grown(np.array([999]))
    assert column.whole().tolist() == MODEL
    assert grown.whole().tolist() == [*MODEL, 999]
    witness.right = witness.right + np.uint64(1)
    assert column.whole().tolist() == [value + 1 for value in MODEL]
    assert column.at(7) == MODEL[7] + 1
    assert column.search(MODEL[7] + 1) == 7
    assert grown.whole().tolist() == [*(value + 1 for value in MODEL), 999]
