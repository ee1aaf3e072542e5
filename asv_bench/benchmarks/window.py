"""Windows: warm, decoded, and the decision records' own case."""

import mmapstore
from asv_bench import measure, promises

from . import common
from .common import Benchmark, track


class Newest(Benchmark):
    param_names = ("file",)
    params = (("records-small", "records-large", "reviews", "short-lines"),)

    def setup(self, file):
        self.transcript = mmapstore.open(common.files.path(file), access="mmap", cache_dir=None)
        self.warm = measure.warm_window(self.transcript)
        self.decoded = measure.decoded_window(self.transcript)

    def teardown(self, file):
        self.transcript.close()

    def time_warm(self, file):
        self.warm()

    def time_decoded(self, file):
        self.decoded()


class Promises(Benchmark):
    track_warm = track(promises.warm_windows, "window_warm")
    track_warm_longer = track(promises.warm_windows, "window_longer")
    track_warm_reviews = track(promises.warm_windows, "window_reviews")
    track_decoded_long = track(promises.decoded_long, "decoded_long")
    track_decoded_short = track(promises.decoded_short, "decoded_short")
    track_records_small = track(promises.records, "records_small")
    track_records_large = track(promises.records, "records_large")
