"""What all benchmarks share: the measured files, and how asv is to sample."""

from dataclasses import replace

from asv_bench import data, promises
from asv_bench.verdict import read_budget

files = data.Files(data.default_directory(), data.FULL, data.real_directory())
effort = promises.QUICK
budget = read_budget()


class Benchmark:
    """How asv samples a class of benchmarks.

    Attributes
    ----------
    version : str
        Pinned: by default it is a digest of the source, and an edited comment would end
        the history. Raised by hand when a benchmark measures something else.
    rounds, repeat : int
        Ten samples a side; with exactly six asv cannot call any change significant.
    """

    version = "1"
    rounds = 2
    repeat = 5
    timeout = 600


class Cold(Benchmark):
    """A full scan: the first one of a sample counts, and no more than one is needed."""

    number = 1
    warmup_time = 0


def track(promise, key, *, large=False):
    """Return a benchmark that tracks the number of one promise, in the budget's unit.

    With `large` the files of gigabytes are measured, too.

    asv draws lower as better and knows no reasons: what the report calls skipped is NaN here.
    """

    def run(self):
        for row in promise(files, replace(effort, large=large)):
            if row.key == key:
                return float("nan") if row.measured is None else row.measured
        raise LookupError(key)

    run.unit = budget[key].unit
    return run
