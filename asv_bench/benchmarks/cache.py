"""Reopening: with a cached layout, by handle and by process; look-ups; private memory."""

import tempfile
from pathlib import Path

import mmapstore
from asv_bench import counting, measure, reopening

from . import common
from .common import Benchmark, track


class Reopened(Benchmark):
    """Opening with a cached layout and touching the newest window, and what is kept for it."""

    param_names = ("file",)
    params = (("records-small", "records-large", "short-lines"),)

    def setup(self, file):
        self.scratch = tempfile.TemporaryDirectory()
        self.path = common.files.path(file)
        with mmapstore.open(self.path, cache_dir=self.scratch.name) as transcript:
            transcript.position("")
            self.message_count = transcript.message_count
        self.reopened = measure.reopened(self.path, Path(self.scratch.name))

    def teardown(self, file):
        self.scratch.cleanup()

    def time_open(self, file):
        self.reopened()

    def track_open_faults(self, file):
        return counting.faults(self.reopened)

    def track_cache_nbytes(self, file):
        kept = sum(path.stat().st_size for path in Path(self.scratch.name).rglob("*.*"))
        return kept / self.message_count

    track_open_faults.unit = "pages"
    track_cache_nbytes.unit = "bytes a message"


class Lookup(Benchmark):
    param_names = ("file",)
    params = (("records-small", "short-lines"),)

    def setup(self, file):
        self.transcript = mmapstore.open(common.files.path(file), cache_dir=None)
        self.id = self.transcript.message_id(self.transcript.message_count // 2)
        self.transcript.position(self.id)

    def teardown(self, file):
        self.transcript.close()

    def time_position(self, file):
        self.transcript.position(self.id)


class Promises(Benchmark):
    track_cached_open = track(reopening.cached_open, "cached_open")
    track_memory_layout = track(reopening.memory, "memory_layout")


class Large(Benchmark):
    """What needs files of gigabytes."""

    track_cached_open_larger = track(reopening.cached_open, "cached_open_larger", large=True)
    track_cached_process_larger = track(reopening.cached_open, "cached_process_larger", large=True)
    track_lookup = track(reopening.lookup, "lookup", large=True)
    track_memory_tail = track(reopening.memory, "memory_tail", large=True)
