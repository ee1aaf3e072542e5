"""Reopening: with a cached layout, by handle and by process; look-ups; private memory."""

from asv_bench import reopening

from .common import Benchmark, track


class Promises(Benchmark):
    track_cached_open = track(reopening.cached_open, "cached_open")
    track_memory_layout = track(reopening.memory, "memory_layout")


class Large(Benchmark):
    """What needs files of gigabytes."""

    track_cached_open_larger = track(reopening.cached_open, "cached_open_larger", large=True)
    track_cached_process_larger = track(reopening.cached_open, "cached_process_larger", large=True)
    track_lookup = track(reopening.lookup, "lookup", large=True)
    track_memory_tail = track(reopening.memory, "memory_tail", large=True)
