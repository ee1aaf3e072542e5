"""Importing: what a command line pays before it does anything."""

from asv_bench import promises

from .common import Benchmark, track


class Import(Benchmark):
    def timeraw_mmapstore(self):
        return "import mmapstore"

    def timeraw_needed(self):
        return "import numpy, orjson"

    track_above_needed = track(promises.importing, "import")

    timeraw_mmapstore.number = timeraw_needed.number = 1
    timeraw_mmapstore.repeat = timeraw_needed.repeat = 10
