"""The folder of a dump, which one writer at a time has to itself."""

from __future__ import annotations

from pathlib import Path

from comparison.schema.errors import BadInputError
from test_common.earlier_run import check_resumable, clear_leftovers
from test_common.folder_lock import FolderLock
from test_common.output_folder import check_content, check_output_folder, clear_old_dump
from test_common.write_errors import write_errors


class DumpFolder:
    """Creates, locks and clears a folder before the first write, and not earlier.

    Attributes:
        path: the folder.
        overwrite: whether an earlier dump in it may be replaced.
        resume: whether an earlier dump in it is to be kept and gone on with.
    """

    def __init__(self, path: Path, *, overwrite: bool, resume: bool = False) -> None:
        """Check the folder.

        Args:
            path: the folder; it and its parents need not exist.
            overwrite: whether an earlier dump in it may be replaced.
            resume: whether an earlier dump in it is to be kept and gone on with.

        Raises:
            UnwritableOutputError: the folder is not empty, is a file, or cannot be written.
            BadInputError: the manifest of a dump to go on with cannot be read.
        """
        self.path = path
        self.overwrite = overwrite
        self.resume = resume
        self._check()
        self._opened = False
        self._lock: FolderLock | None = None

    def open(self) -> None:
        """Lock the folder, and before the first write create it, or clear it of an earlier dump.

        Of a dump to go on with only that goes which a killed run was in the middle of.

        Raises:
            UnwritableOutputError: it cannot be written, or is another writer's.
        """
        if self._lock is not None:
            return
        if not self._opened:
            self._check()  # it may have changed since
        with write_errors(self.path):
            if not self._opened:
                self.path.mkdir(parents=True, exist_ok=True)
            self._lock = FolderLock(self.path)
        if not self._opened:
            self._clear()
        self._opened = True

    def release(self) -> None:
        """Let other writers in."""
        if self._lock is not None:
            self._lock.release()
            self._lock = None

    def _check(self) -> None:
        check_output_folder(self.path, self.overwrite or self.resume)
        if self.resume:
            check_resumable(self.path)

    def _clear(self) -> None:
        """Clear the folder, now that no one else can write into it."""
        try:
            with write_errors(self.path):
                check_content(self.path, overwrite=self.overwrite or self.resume)
            if self.resume:
                check_resumable(self.path)
                clear_leftovers(self.path)
            else:
                clear_old_dump(self.path)
        except BadInputError:
            self.release()
            raise
