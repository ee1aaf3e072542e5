"""Refresh: what an append costs a reader in the host's own process."""

from asv_bench import reopening

from .common import Benchmark, track


class Promises(Benchmark):
    track_host_refresh = track(reopening.host_refresh, "host_refresh")
    track_host_refresh_longer = track(reopening.host_refresh, "host_refresh_longer")
