"""Review states: time and bytes of one, whatever the history."""

from contextlib import ExitStack

from asv_bench import counting, hosted, writing

from . import common
from .common import Benchmark, track


class Review(Benchmark):
    param_names = ("file",)
    params = (("records-small", "records-large"),)

    def setup(self, file):
        self.stack = ExitStack()
        self.review = hosted.reviews(hosted.hosted(common.files, file, self.stack))

    def teardown(self, file):
        self.stack.close()

    def time_state(self, file):
        self.review()

    def track_state_nbytes(self, file):
        if not counting.available():
            return float("nan")
        return counting.spent(self.review, "wchar")

    track_state_nbytes.unit = "bytes"


class Promises(Benchmark):
    track_review_longer = track(writing.reviewing, "review_longer")
    track_review_nbytes = track(writing.reviewing, "review_nbytes")
