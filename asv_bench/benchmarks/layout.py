"""Cold layouts: times for the graphs, ratios to the floors for the promises."""

from asv_bench import measure, promises

from . import common
from .common import Benchmark, Cold, track


class ColdLayout(Cold):
    param_names = ("file",)
    params = (("records-small", "records-large", "type-last", "short-lines", "claude"),)

    def setup(self, file):
        path = common.files.claude()[0] if file == "claude" else common.files.path(file)
        self.cold_layout = measure.cold_layout(path)
        self.cold_layout()

    def time_open(self, file):
        self.cold_layout()


class Promises(Benchmark):
    track_type_first = track(promises.cold_type_first, "cold_type_first")
    track_type_last = track(promises.cold_type_last, "cold_type_last")
    track_short_lines = track(promises.cold_short_lines, "cold_short_lines")
    track_claude = track(promises.cold_claude, "cold_claude")
