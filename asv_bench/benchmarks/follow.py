"""Following: a poll where nothing changed, and a line that arrived, with the floor of each."""

import tempfile
from contextlib import ExitStack
from pathlib import Path

from asv_bench import following

from . import common
from .common import Benchmark


class Following(Benchmark):
    """A follower of a copy, which grows by what arrives."""

    param_names = ("file",)
    params = (("records-small", "records-large"),)

    def setup(self, file):
        self.stack = ExitStack()
        directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))
        transcript = following.copied(common.files.path(file), directory, self.stack)
        self.polled = following.polled(transcript)
        self.stat_calls = following.stat_calls(transcript)
        self.arrived = following.arrived(transcript, self.stack)
        self.append = following.appender(transcript.path, self.stack)

    def teardown(self, file):
        self.stack.close()

    def time_hundred_polls(self, file):
        self.polled()

    def time_hundred_stat_calls(self, file):
        self.stat_calls()

    def time_line(self, file):
        self.arrived()

    def time_bare_write(self, file):
        self.append()


class Ratios(Benchmark):
    def setup(self):
        self.stack = ExitStack()
        self.directory = Path(self.stack.enter_context(tempfile.TemporaryDirectory()))

    def teardown(self):
        self.stack.close()

    def track_poll(self):
        path = common.files.path("records-small")
        return following.poll_by_stat(path, self.directory, self.stack, common.effort.warm)

    track_poll.unit = "x stat"

    def track_line_longer(self):
        small, large = (common.files.path(f"records-{name}") for name in ("small", "large"))
        effort = common.effort
        return following.line_by_history(
            small, large, self.directory, self.stack, effort.warm, effort.number // 10
        )

    track_line_longer.unit = "x 3,000 messages"
