"""Appending: what a durable line costs above the disk, one by one and in batches."""

from contextlib import ExitStack

from asv_bench import counting, hosted, writing

from . import common
from .common import Benchmark, track


class Append(Benchmark):
    """Durable appends, and the same bytes written and synced with nothing around them."""

    def setup(self):
        self.stack = ExitStack()
        session = hosted.hosted(common.files, "records-small", self.stack)
        self.append = hosted.appends(session)
        self.append_batch = hosted.batches(session)
        self.bare_write = hosted.bare_writes(session, self.stack)

    def teardown(self):
        self.stack.close()

    def time_message(self):
        self.append()

    def time_batch(self):
        self.append_batch()

    def time_bare_write(self):
        self.bare_write()


class Counts(Benchmark):
    """What the process writes for an append, wherever to."""

    def setup(self):
        if not counting.available():
            raise NotImplementedError("the system does not count what a process writes")
        self.stack = ExitStack()
        self.append = hosted.appends(hosted.hosted(common.files, "records-small", self.stack))

    def teardown(self):
        self.stack.close()

    def track_message_nbytes(self):
        return counting.spent(self.append, "wchar")

    def track_message_write_calls(self):
        return counting.spent(self.append, "syscw")

    track_message_nbytes.unit = "bytes"
    track_message_write_calls.unit = "calls"


class Promises(Benchmark):
    track_append = track(writing.appending, "append")
    track_append_batch = track(writing.appending, "append_batch")
