"""Listing: the whole command over many sessions, the second time."""

from asv_bench import reopening

from .common import Benchmark, track


class Promises(Benchmark):
    track_listing = track(reopening.listing, "listing", large=True)
