"""Appending: what a durable line costs above the disk, one by one and in batches."""

from asv_bench import writing

from .common import Benchmark, track


class Promises(Benchmark):
    track_append = track(writing.appending, "append")
    track_append_batch = track(writing.appending, "append_batch")
