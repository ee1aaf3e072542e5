"""Verdicts follow from the numbers: intervals, limits, and when there is more to measure."""

import random
from itertools import product
from math import comb

import pytest
from hypothesis import given
from hypothesis import strategies as st

from asv_bench.interval import LEAST_COUNT, central, median_interval, sign_test
from asv_bench.verdict import Limit, Row, bounds, judge, read_budget, skipped

RATIO = Limit("key", "promise", 1.5, "x something", "reason")
TIME = Limit("key", "promise", 1.5, "ms", "reason")

numbers = st.floats(0.01, 100)
many = st.lists(numbers, min_size=LEAST_COUNT, max_size=40)


def rows(values):
    return [Row("key", value, detail=f"of {value}") for value in values]


# -- intervals ----------------------------------------------------------------------------


@pytest.mark.parametrize("count", range(1, 13))
def test_interval_encloses_the_median_as_often_as_it_says(count):
    # every way in which numbers can fall around a median of 0.5, each equally likely
    enclosed = 0
    for sides in product((0, 1), repeat=count):
        interval = median_interval([side + number / 1000 for number, side in enumerate(sides)])
        enclosed += interval is None or interval[0] < 0.5 <= interval[1]
    assert enclosed >= 0.95 * 2**count


@pytest.mark.parametrize("count", range(1, 60))
def test_interval_is_no_wider_than_it_has_to_be(count):
    interval = median_interval(range(count))
    if interval is None:
        assert count < LEAST_COUNT
        return
    low, high = interval
    assert low + high == count - 1
    # one number less at each end would enclose it too rarely
    assert 2 * sum(comb(count, fewer) for fewer in range(low + 2)) > 0.05 * 2**count


@given(many, st.randoms(use_true_random=False))
def test_interval_does_not_depend_on_the_order(values, shuffler):
    shuffled = list(values)
    shuffler.shuffle(shuffled)
    assert median_interval(shuffled) == median_interval(values)


@given(many)
def test_interval_holds_the_median_and_is_made_of_values(values):
    low, high = median_interval(values)
    assert low <= central(values) <= high
    assert {low, high, central(values)} <= set(values)


@given(many)
def test_interval_of_the_inverses_is_the_inverse_of_the_interval(values):
    low, high = median_interval(values)
    assert median_interval([1 / value for value in values]) == (1 / high, 1 / low)


@given(many, st.sampled_from([0.5, 2.0, 4.0]))
def test_interval_scales_with_what_is_measured(values, factor):
    low, high = median_interval(values)
    assert median_interval([value * factor for value in values]) == (low * factor, high * factor)


@given(st.lists(numbers, min_size=9, max_size=40), st.floats(100, 1e9))
def test_one_wild_number_leaves_the_interval_among_the_others(values, wild):
    assert median_interval([*values, wild])[1] <= max(values)


@given(st.lists(st.sampled_from([0.5, 1.0, 2.0]), max_size=12))
def test_sign_test_is_the_share_of_the_ways_that_are_as_uneven(values):
    uneven = [value for value in values if value != 1]
    found = abs(sum(value > 1 for value in uneven) - sum(value < 1 for value in uneven))
    ways = list(product((-1, 1), repeat=len(uneven)))
    expected = sum(abs(sum(way)) >= found for way in ways) / len(ways)
    assert sign_test(values) == pytest.approx(expected)


# -- verdicts of promises -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "expected", "measured"),
    [
        ([1.2, 1.3, 1.25, 1.4, 1.3, 1.49], "under", 1.3),
        ([1.6, 1.7, 1.9, 1.8, 1.51, 1.6, 1.6, 1.6], "over", 1.6),
        # what fails a run must be surer
        ([1.6, 1.7, 1.9, 1.8, 1.51, 1.6], "undecided", 1.6),
        ([1.4, 1.4, 1.4, 1.4, 1.4, 1.6], "undecided", 1.4),
        # nine are enough to leave one aside
        ([1.4] * 8 + [1.6], "under", 1.4),
        ([1.6] * 8 + [1.4], "undecided", 1.6),
        ([1.6] * 11 + [1.4], "over", 1.6),
        ([1.4] * 5, "under", 1.4),
        ([1.4, 1.3, 1.4, 1.4, 1.4], "undecided", 1.4),
        ([1.5, 1.5], "under", 1.5),
    ],
)
def test_ratio_is_decided_when_its_interval_is_on_one_side(values, expected, measured):
    judged = judge(RATIO, rows(values))
    assert (judged.verdict, judged.measured) == (expected, measured)
    assert judged.detail == f"of {measured}"


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # what disturbs only adds: one pass within the limit shows that it can be kept
        ([1.4, 9.0, 9.0, 9.0, 9.0, 9.0], "under"),
        ([1.5] * 6, "under"),
        ([1.6, 1.6, 1.62, 1.61, 1.62, 1.63], "over"),
        # the passes are as far from each other as the least of them is from the limit
        ([1.6, 1.7, 1.8, 1.8, 1.9, 1.9], "undecided"),
    ],
)
def test_time_is_its_least_pass(values, expected):
    judged = judge(TIME, rows(values))
    assert (judged.verdict, judged.measured) == (expected, min(values))
    assert judged.detail == f"of {min(values)}"


@pytest.mark.parametrize(("measured", "margin"), [(1.5, 0), (0.75, 0.5), (3.0, -1.0), (None, None)])
def test_margin_is_the_share_of_the_limit_that_is_left(measured, margin):
    assert judge(RATIO, rows([measured] * 6)).margin == margin


def test_what_was_not_measured_is_skipped_with_its_reason():
    judged = judge(RATIO, [skipped("key", "no compiler")] * 6)
    assert (judged.verdict, judged.measured, judged.passes) == ("skipped", None, ())
    assert judged.detail == "no compiler"


@given(many, st.booleans())
def test_estimate_lies_within_its_bounds(values, is_ratio):
    low, high = bounds(values, is_ratio=is_ratio)
    judged = judge(RATIO if is_ratio else TIME, rows(values))
    assert low <= judged.measured <= high


@given(st.integers(0, 2**32), st.floats(0.5, 0.9), st.booleans())
def test_noise_that_only_adds_makes_no_verdict_over_of_what_is_clearly_under(seed, share, is_ratio):
    draw = random.Random(seed)

    def disturbed():
        return 1.0 + draw.expovariate(50)

    values = [
        share * 1.5 * disturbed() / (disturbed() if is_ratio else 1) for _ in range(LEAST_COUNT)
    ]
    assert judge(RATIO if is_ratio else TIME, rows(values)).verdict != "over"


def test_budget_tells_ratios_from_times():
    budget = read_budget()
    assert budget["append"].is_ratio
    assert budget["review_nbytes"].is_ratio
    assert not budget["window_warm"].is_ratio
    assert not budget["memory_layout"].is_ratio
