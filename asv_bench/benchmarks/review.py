"""Review states: time and bytes of one, whatever the history."""

from asv_bench import writing

from .common import Benchmark, track


class Promises(Benchmark):
    track_review_longer = track(writing.reviewing, "review_longer")
    track_review_nbytes = track(writing.reviewing, "review_nbytes")
