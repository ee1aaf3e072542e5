"""The floors: what this machine takes to read a file, with nothing of the library in it.

A step in these graphs is a change of the machine; one in the others alone is ours.
"""

from asv_bench import compiled, measure

from . import common
from .common import Cold


class Floors(Cold):
    param_names = ("file",)
    params = (("records-large", "type-last", "short-lines"),)

    def setup(self, file):
        path = common.files.path(file)
        self.bare_pass = measure.bare_pass(path)
        self.bare_pass()

    def time_bare_pass(self, file):
        self.bare_pass()


class CompiledScan(Cold):
    def setup(self):
        self.path, _ = common.files.claude()
        try:
            self.program = compiled.build(common.files.directory)
        except compiled.UnavailableError as error:
            # asv's word for "not here"
            raise NotImplementedError(str(error)) from error

    def track_claude_ms(self):
        contender = measure.compiled_scan(self.program, self.path, "claude")
        return min(contender() for _ in range(self.repeat)) / 1e6

    track_claude_ms.unit = "ms"
