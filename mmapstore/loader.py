"""From a path to a generation: out of a cache if one can be trusted, else out of the file.

A layout is proven for the stamp that was taken before its bytes were read. Where the
stamp is still the same, the layout still holds; where the file has grown and its writer
is vouched for, or the growth is the host's own append, what is new is scanned and nothing
else; everything else is read anew. Decision record: append-only review state, cache reuse.
"""

from __future__ import annotations

import contextlib
import enum
import functools
import os
import zlib
from typing import TYPE_CHECKING, Any, Literal

from . import cache, cachedir, detect, identity, layout
from .cachedir import CacheDir
from .dialect import DIALECTS, NATIVE
from .errors import NotATranscriptError, TranscriptChangedError
from .fileio import on_remote_filesystem, open_regular
from .filemap import MappedFile, ReadFile
from .generation import Generation
from .provenance import is_own, only_appended
from .stamp import Stamp, is_racy

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from .cache import Cache, Header
    from .fileio import Descriptor
    from .filemap import FileBytes
    from .grammar import Dialect
    from .walk import Progress

Access = Literal["auto", "mmap", "pread"]
Trust = Literal["none", "append-only"]

#: growth that is told line by line, which costs less than the arrays
_FEW_NBYTES = 1 << 14

_BY_NAME = {dialect.name: dialect for dialect in DIALECTS}


@functools.cache
def _rules(name: str) -> int:
    return cache.rules_of(_BY_NAME[name])


class Refresh(enum.IntEnum):
    """What a refresh found; false if nothing changed."""

    #: nothing changed
    SAME = 0
    #: the file has grown; every position still holds
    APPENDED = 1
    #: the file was read anew; positions may mean other messages
    REBUILT = 2

    def __str__(self) -> str:
        """Return the name: what a person is told, as an f-string does."""
        return self.name

    def __format__(self, spec: str) -> str:
        """Format the name; the number where the form is one of numbers."""
        try:
            return format(self.name, spec)
        except ValueError:
            return format(int(self), spec)


class Loader:
    """Makes the generations of one transcript.

    Parameters
    ----------
    path : str
        Absolute.
    shown_path : str
        As the caller gave it, for errors.
    asked : Dialect, optional
        The dialect, if it is not to be detected.
    access, trust, cache_dir, progress
        As in :func:`mmapstore.open`.

    Attributes
    ----------
    cache_state : {"off", "miss", "stale", "hit"}
        What became of the cache when the transcript was opened.
    cache_error : OSError or None
        Why the layout could not be kept, the last time that this was tried.
    """

    def __init__(
        self,
        path: str,
        shown_path: str,
        *,
        asked: Dialect | None,
        access: Access,
        trust: Trust,
        cache_dir: str | CacheDir | None,
        progress: Progress | None,
    ) -> None:
        self._path = path
        self._shown_path = shown_path
        self._asked = asked
        self._access = access
        self._trust = trust
        self._cache_dir = cache_dir
        self._progress = progress
        self._has_shrunk = False
        self.cache_state = "off" if cache_dir is None else "miss"
        self.cache_error: OSError | None = None
        # the generation that the cache is of, and whether its identities are in there
        self._kept: tuple[int, bool] | None = None

    # -- generations ------------------------------------------------------------------

    def open(self) -> Generation:
        """Return the first generation.

        Notes
        -----
        Costs the same for any size where a cache is good, else O(nbytes).
        """
        descriptor = open_regular(self._path)
        try:
            return self._loaded(descriptor) or self._built(descriptor, 0)
        except BaseException:
            # an error that someone keeps would keep the file open
            descriptor.close()
            raise

    def renewed(
        self, current: Generation, stamp: Stamp, trust: Trust | None = None
    ) -> tuple[Generation, Refresh]:
        """Return the generation after `current`; `stamp` is what the path has now."""
        known = current.layout.stamp
        fresh = not stamp.same_file(known)
        if fresh:
            return self._replaced(current.number + 1), Refresh.REBUILT
        descriptor = current.descriptor
        # behind a racy state an edit may be hidden, whoever appended since
        own = not current.racy and only_appended(known, stamp)
        if not own:
            stamp = descriptor.stamp()
            self._has_shrunk |= stamp.nbytes < known.nbytes
        if (own or (trust or self._trust) == "append-only") and not current.doubted:
            if stamp == known:
                # an append would have made it longer
                return current, Refresh.SAME
            if stamp.nbytes > known.nbytes and current.claimed:
                grown = self._grown(current, stamp, own=own)
                if grown is not None:
                    return grown, Refresh.APPENDED
        return self._built(descriptor, current.number + 1), Refresh.REBUILT

    def rebuilt(self, current: Generation) -> Generation:
        """Return a generation of the same file, read anew."""
        return self._built(current.descriptor, current.number + 1)

    def _replaced(self, number: int) -> Generation:
        descriptor = open_regular(self._path)
        try:
            return self._built(descriptor, number)
        except BaseException:
            descriptor.close()
            raise

    def _grown(self, current: Generation, stamp: Stamp, *, own: bool) -> Generation | None:
        """Return the generation that an append makes of `current`; None where it was none."""
        known, descriptor = current.layout, current.descriptor
        grown = None

        def source() -> FileBytes:
            return self._source(descriptor, stamp, known.dialect)

        if stamp.nbytes - known.file_len <= _FEW_NBYTES:
            # read in one go with what stands before it
            base = known.file_len - len(known.last)
            data = descriptor.read(base, stamp.nbytes)
            if not data.startswith(known.last):
                return None
            if len(data) == stamp.nbytes - base:
                grown = layout.with_few(known, data[len(known.last) :], stamp)
        if grown is None:
            scanned = source()
            if not layout.is_behind(known, scanned):
                return None
            progress = None if own else self._progress
            grown = layout.extend(known, scanned, stamp, progress=progress)
        return Generation(
            current.number + 1,
            self._shown_path,
            grown,
            source,
            descriptor,
            proven=current.proven if own else descriptor.stamp() == stamp,
            racy=not own and self._is_racy(stamp),
            on_trust=not own or current.on_trust,
            before=current,
        )

    def _built(self, descriptor: Descriptor, number: int) -> Generation:
        """Return a generation of the file as it is, and keep its layout."""
        stamp = descriptor.stamp()
        while True:
            # of the file as it was before its bytes were read
            racy = not is_own(stamp) and self._is_racy(stamp)
            dialect, claimed = self._recognised(descriptor, stamp)
            source = self._source(descriptor, stamp, dialect)
            built = layout.build(source, dialect, stamp, progress=self._progress)
            now = descriptor.stamp()
            if now.nbytes >= stamp.nbytes:
                break
            # it has become shorter under the scan: what was seen is of no state
            stamp, self._has_shrunk = now, True
        generation = Generation(
            number,
            self._shown_path,
            built,
            lambda: source,
            descriptor,
            claimed=claimed,
            proven=now == stamp,
            racy=racy,
        )
        self.keep(generation)
        return generation

    def _recognised(self, descriptor: Descriptor, stamp: Stamp) -> tuple[Dialect, bool]:
        """Return the dialect, and whether that is settled whatever is appended."""
        head = descriptor.read(0, min(stamp.nbytes, detect.DETECTION_NBYTES))
        if not stamp.nbytes and descriptor.read(0, 1) and not descriptor.stamp().nbytes:
            raise NotATranscriptError(
                "a file of no size that has bytes",
                path=self._shown_path,
                hint="copy it to a file first",
            )
        detect.check_is_transcript(self._shown_path, head)
        dialect = self._asked or detect.detect(self._path, head)
        # what no line claims yet may turn out to be of another dialect
        return dialect, self._asked is not None or detect.is_claimed(dialect, head)

    def _is_racy(self, stamp: Stamp) -> bool:
        remote = on_remote_filesystem(stamp.device)
        return is_racy(stamp, os.path.dirname(self._path), remote=remote)

    def _source(self, descriptor: Descriptor, stamp: Stamp, dialect: Dialect) -> FileBytes:
        if self._access == "mmap":
            return MappedFile(descriptor, stamp.nbytes)
        if (
            self._access == "auto"
            and dialect.safe_to_map
            and not self._has_shrunk
            and not on_remote_filesystem(stamp.device)
        ):
            # ENODEV, ENOMEM, EMFILE: reading gives the same answers
            with contextlib.suppress(OSError):
                return MappedFile(descriptor, stamp.nbytes)
        return ReadFile(descriptor, stamp.nbytes)

    # -- the cache --------------------------------------------------------------------

    def _loaded(self, descriptor: Descriptor) -> Generation | None:
        """Return a generation out of a cache, or None if none can be trusted."""
        stamp = descriptor.stamp()
        for place, native_only in cachedir.candidates(self._cache_dir, self._path):
            found = cache.read(place)
            if found is None:
                continue
            self.cache_state = "stale"
            header = found.header
            dialect, claimed = self._dialect_of(header, descriptor, stamp)
            if dialect is None or (native_only and dialect is not NATIVE):
                continue
            generation = self._out_of(found, dialect, claimed, descriptor, stamp)
            if generation is not None:
                self.cache_state = "hit"
                if not native_only:
                    cachedir.note_use(place)
                return generation
        return None

    def _dialect_of(
        self, header: Header, descriptor: Descriptor, stamp: Stamp
    ) -> tuple[Dialect | None, bool]:
        """Return the dialect of a cached layout, if it is the one here, and whether it is settled."""
        dialect = _BY_NAME.get(header.dialect_name)
        if dialect is None or _rules(dialect.name) != header.dialect_rules:
            return None, False
        if self._asked is not None:
            return (dialect if dialect is self._asked else None), True
        if header.asked or not header.claimed or header.path != self._path:
            recognised, claimed = self._recognised(descriptor, stamp)
        elif detect.is_in_host_directory(self._path):
            recognised, claimed = NATIVE, header.claimed
        else:
            recognised, claimed = dialect, True
        return (dialect if recognised is dialect else None), claimed

    def _out_of(
        self,
        found: Cache,
        dialect: Dialect,
        claimed: bool,
        descriptor: Descriptor,
        stamp: Stamp,
    ) -> Generation | None:
        header = found.header
        trusting = self._trust == "append-only"
        exact = header.stamp == stamp and (trusting or not header.on_trust)
        lagging = (
            trusting
            and claimed
            and header.stamp.same_file(stamp)
            and header.stamp.nbytes < stamp.nbytes
        )
        if not exact and not lagging:
            return None
        source = self._source(descriptor, stamp, dialect)
        # of the same lines as the cache, whatever came behind them since
        bounded = ReadFile(descriptor, header.file_len)

        def layout_anew() -> Sequence[NDArray[Any]]:
            self._kept = None
            built = layout.build(bounded, dialect, stamp)
            facts = (built.file_len, built.line_count, built.open_boundary, built.last)
            if facts != (header.file_len, header.line_count, header.open_boundary, last):
                raise TranscriptChangedError(
                    "the file was changed in place",
                    path=self._shown_path,
                    hint="refresh() reads it anew",
                )
            return cache.layout_columns(built)

        def identities_anew() -> Sequence[NDArray[Any]]:
            self._kept = None
            return cache.identity_columns(identity.build(bounded, known.messages, dialect))

        last = layout.last_bytes(source, header.file_len)
        if zlib.crc32(last) != header.witness:
            return None
        known = found.layout(dialect, last, layout_anew)
        identities = found.identities(identities_anew)
        first = Generation(
            0,
            self._shown_path,
            known,
            lambda: source,
            descriptor,
            claimed=claimed,
            on_trust=header.on_trust,
            renew=found.renew_layout,
            identities=identities,
        )
        if exact:
            self._kept = (0, header.identified)
            return first
        try:
            return self._grown(first, stamp, own=False)
        except TranscriptChangedError:
            return None

    def keep(self, generation: Generation) -> None:
        """Write the layout to the cache, if it is proven and not there yet.

        Notes
        -----
        That it cannot be written is no error: the cache only saves time.
        """
        identities = generation.known_identities
        state = (generation.number, identities is not None)
        descriptor = generation.descriptor
        where = self._cache_dir
        if (
            where is None
            # beside a file there is only room for what is read from there
            or (where is CacheDir.BESIDE and generation.dialect is not NATIVE)
            or self._kept == state
            or not generation.proven
            or generation.racy
            or generation.doubted
            or self._is_racy(generation.layout.stamp)
        ):
            return
        self.cache_error = None
        try:
            if not os.fstat(descriptor.fd).st_nlink:
                return  # nobody can open it again
            place = cachedir.prepared(where, self._path)
            nbytes = cache.write(
                place,
                self._path,
                generation.layout,
                identities,
                asked=self._asked is not None,
                claimed=generation.claimed,
                on_trust=generation.on_trust,
            )
            self._kept = state
            if where is not CacheDir.BESIDE:
                cachedir.make_room(os.path.dirname(place), nbytes)
        except OSError as error:
            # its traceback would keep this frame alive, and what it holds open
            self.cache_error = error.with_traceback(None)
        except TranscriptChangedError:
            pass
