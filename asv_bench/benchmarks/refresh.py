"""Refresh: where nothing changed, after an append, and after one of the host's own."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from asv_bench import following, reopening

from . import common
from .common import Benchmark, track


class Refresh(Benchmark):
    """A reader of a copy that grows; it takes growth for an append."""

    param_names = ("file",)
    params = (("records-small", "records-large"),)

    def setup(self, file):
        self.stack = ExitStack()
        directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        self.transcript = following.copied(common.files.path(file), directory, self.stack)
        self.append = following.appender(self.transcript.path, self.stack)

    def teardown(self, file):
        self.stack.close()

    def time_unchanged(self, file):
        self.transcript.refresh()

    def time_append_and_refresh(self, file):
        self.append()
        self.transcript.refresh()

    def time_bare_append(self, file):
        self.append()


class Promises(Benchmark):
    track_host_refresh = track(reopening.host_refresh, "host_refresh")
    track_host_refresh_longer = track(reopening.host_refresh, "host_refresh_longer")
