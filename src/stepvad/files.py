"""Files: written whole or not at all, read up to a limit, and secrets by reference."""

from __future__ import annotations

import errno
import logging
import math
import os
import re
import secrets
import shutil
import stat
import struct
import tempfile
import time
import warnings
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path
from tokenize import TokenError
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

from stepvad.codec import NewerVersionError, decode, encode
from stepvad.errors import ConfigError, DataError, StepvadError, os_reason

if TYPE_CHECKING:
    from numpy.typing import NDArray

LEFTOVER_S = 3600.0
"""Age at which a temporary file counts as abandoned; writing one takes seconds."""
PRIVATE = 0o600
"""Mode of a new file: poses, scores and models are personal data."""
PUBLIC = 0o666
"""Mode of a file that holds no personal data and that other users may need."""
NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS})
"""Error numbers that only writing raises."""
TEMPORARY = ".stepvad-"
"""Prefix of temporary directories, for `remove_leftovers`."""
SQLITE_ENDS = ("-wal", "-shm", "-journal")
"""Suffixes of the files that SQLite keeps next to a database."""


@contextmanager
def replacing(
    path: Path, error: type[StepvadError] = StepvadError, *, mode: int = PRIVATE
) -> Iterator[Path]:
    """Yield a temporary file that replaces `path` on success and is deleted on error.

    Until then readers of `path` see the old file, which also survives a crash. A new file gets
    `mode`, reduced by the umask; an existing one keeps its own. Failures to write are raised as
    `error`; other errors inside the context, such as failures to read, propagate unchanged.
    """
    temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
    try:
        with _written(path, error):
            os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode))
        try:
            yield temporary
        except OSError as reason:
            if not _is_about(reason, temporary):
                raise
            raise _unwritable(path, error, reason) from reason
        with _written(path, error):
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
            with suppress(FileNotFoundError):
                temporary.chmod(stat.S_IMODE(path.stat().st_mode))
            temporary.replace(path)
    except BaseException:  # Ctrl-C too, from the moment the file exists
        with suppress(OSError):
            temporary.unlink()
        raise


def check_writable(directory: Path, error: type[StepvadError] = StepvadError) -> None:
    """Raise `error` unless files can be written in a directory: now, rather than after hours."""
    with _written(directory, error), tempfile.TemporaryFile(dir=directory):
        pass


def remove_leftovers(directory: Path) -> None:
    """Remove temporary files and directories of killed writers; recent ones may be in use."""
    for end in ("", *SQLITE_ENDS):
        for file in directory.glob("." + "[0-9a-f]" * 16 + ".tmp" + end):
            _remove_old(file)
    for left in directory.glob(f"{TEMPORARY}*"):
        if _is_old(left):
            shutil.rmtree(left, ignore_errors=True)


def _is_old(path: Path) -> bool:
    """Tell if a temporary file or directory counts as abandoned."""
    with suppress(OSError):
        return time.time() - path.lstat().st_mtime > LEFTOVER_S
    return False


def _remove_old(file: Path) -> None:
    if _is_old(file):
        with suppress(OSError):
            file.unlink()


@contextmanager
def _written(path: Path, error: type[StepvadError]) -> Iterator[None]:
    try:
        yield
    except OSError as reason:
        raise _unwritable(path, error, reason) from reason


def _is_about(reason: OSError, temporary: Path) -> bool:
    """True if an error comes from writing the temporary file, not from reading another."""
    given = (reason.filename, reason.filename2)
    names = {os.fsdecode(name) for name in given if isinstance(name, str | bytes | os.PathLike)}
    if names:
        return not names.isdisjoint({str(temporary), str(temporary.parent)})
    return reason.errno in NO_ROOM or str(temporary) in str(reason)


def _unwritable(path: Path, error: type[StepvadError], reason: OSError) -> StepvadError:
    return error(
        f"{path}: expected a place that can be written, got: {os_reason(reason)}",
        hint="check that the directory exists, its permissions and the free space",
    )


AT_ONCE = 1 << 20
FREE_BYTES = 1 << 27
"""Bytes that any compressed file may take when unpacked."""
UNPACKED_RATIO = 64
"""Above that, the largest compression ratio allowed: poses compress to a half or a third."""


def read_bounded(path: Path, *, most: int) -> bytes:
    """Read a whole file; reject one that is larger than `most`, or endless.

    Raises OSError if the file cannot be read, and DataError if it is too large.
    """
    with path.open("rb") as file:
        about = os.fstat(file.fileno())
        if stat.S_ISREG(about.st_mode) and about.st_size > most:
            raise _too_large(most)
        return read_open(file, most=most)


def read_open(file: BinaryIO, *, most: int) -> bytes:
    """Read the rest of an open file; memory grows with the data read, not with the limit."""
    parts, size = [], 0
    while part := file.read(AT_ONCE):
        parts.append(part)
        size += len(part)
        if size > most:
            raise _too_large(most)
    return b"".join(parts)


def most_unpacked(size: int) -> int:
    """Bytes that a file of this size may take when unpacked."""
    return max(FREE_BYTES, UNPACKED_RATIO * size)


def _too_large(most: int) -> DataError:
    return DataError(f"expected a file of up to {most:,} bytes, got more", hint="split it")


logger = logging.getLogger(__name__)

DAMAGED_SUFFIX = ".damaged"
"""Suffix of a file that was set aside."""
MOST_DAMAGED = 9
"""Files set aside per name; beyond that the latest replaces the one before it."""

Value = TypeVar("Value")


def read_state(path: Path, kind: type[Value], what: str, *, most: int, lost: str) -> Value | None:
    """Decode a file of up to `most` bytes; None if there is none.

    Only a missing file counts as empty, since callers write back what they got. If the file cannot
    be read now, `OSError` is raised; if it is of a newer version, `NewerVersionError`. Neither
    changes it. A damaged file is set aside before a new one is written; the log then says what is
    `lost`.
    """
    try:
        return decode(kind, read_bounded(path, most=most), what)
    except FileNotFoundError:
        return None
    except NewerVersionError as error:
        raise NewerVersionError(f"{path}: {error.problem}", hint=error.hint) from None
    except DataError as error:
        kept = set_aside(path)
        words = error.problem[:200]
        logger.warning("%s: damaged, so %s; kept as %s: %s", path, lost, kept.name, words)
        return None


def write_state(path: Path, value: object) -> None:
    """Write a value that `read` reads; it is on disk when this returns."""
    with _written(path, StepvadError):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with replacing(path) as temporary:
        temporary.write_bytes(encode(value))


def set_aside(path: Path) -> Path:
    """Rename a damaged file, so that nothing overwrites it; return its new path."""
    names = (
        f"{path.name}{DAMAGED_SUFFIX}{f'-{n}' if n > 1 else ''}" for n in range(1, MOST_DAMAGED + 1)
    )
    for name in names:
        kept = path.with_name(name)
        if not kept.exists():
            break
    path.replace(kept)
    return kept


def is_unread(error: BaseException | None) -> bool:
    """True if an error leaves open what a file holds: it could not be read, or is newer than us."""
    if isinstance(error, OSError):
        return not isinstance(error, FileNotFoundError)
    return isinstance(error, NewerVersionError)


NPY_MAGIC = b"\x93NUMPY"
NPY_SUFFIX = ".npy"
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Those that numpy writes; others can demand memory out of proportion to the archive."""
NPY_HINT = "the file may be cut off or damaged; copy it again"

_NPY_ERRORS = (
    *(EOFError, MemoryError, OverflowError, RecursionError, SyntaxError, TokenError),
    *(TypeError, ValueError, KeyError),
)
"""Errors of a damaged header: it is Python source, so any error of Python's parser."""
_ZIP_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError),
    *(EOFError, OSError, KeyError, ValueError, OverflowError, UnicodeError),
)


def read_array(data: bytes) -> NDArray[Any]:
    """Read the array of an NPY file; pickled objects are rejected because they could run code."""
    if not data.startswith(NPY_MAGIC):  # np.load would also accept other kinds of files
        raise DataError("expected an NPY array, got another kind of file", hint=NPY_HINT)
    import numpy as np  # only here: not every program that reads files computes

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _check_size(data)
            found: NDArray[Any] = np.load(BytesIO(data), allow_pickle=False)
            return found
    except _NPY_ERRORS as error:
        raise DataError(f"expected an NPY array of numbers, got: {error}", hint=NPY_HINT) from error


def read_arrays(data: bytes, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Read the arrays of these names from an NPZ archive."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            found = {name: archive.getinfo(name + NPY_SUFFIX) for name in names}
            _check_members(found.values(), len(data))
            raw = {name: archive.read(member) for name, member in found.items()}
    except _ZIP_ERRORS as error:
        raise DataError(f"expected an NPZ archive, got: {error}", hint=NPY_HINT) from error
    made = {}
    for name, content in raw.items():
        try:
            made[name] = read_array(content)
        except DataError as error:
            raise error.located(name) from error
    return made


def _check_size(data: bytes) -> None:
    """Reject a header that claims more or fewer bytes than follow it."""
    from numpy.lib import format as npy

    file = BytesIO(data)
    match npy.read_magic(file):
        case (1, 0):
            shape, _, dtype = npy.read_array_header_1_0(file)
        case (2, 0):
            shape, _, dtype = npy.read_array_header_2_0(file)
        case version:
            raise ValueError(f"version {version}")
    claimed, there = math.prod(shape) * dtype.itemsize, len(data) - file.tell()
    if dtype.hasobject:
        raise ValueError("Object arrays, which could run code")
    if dtype.itemsize == 0 or claimed != there or min(shape, default=0) < 0:
        raise ValueError(f"{there:,} bytes for {dtype} of shape {shape}")


def _check_members(members: Iterable[zipfile.ZipInfo], size: int) -> None:
    """Reject an archive that unpacks to far more than its own size."""
    unpacked = 0
    for member in members:
        if member.compress_type not in COMPRESSIONS:
            raise DataError(
                f"{member.filename!r}: expected it stored or deflated, got another compression",
                hint="write the archive with numpy",
            )
        unpacked += member.file_size
    if unpacked > most_unpacked(size):
        raise DataError(
            f"expected arrays of up to {most_unpacked(size):,} bytes, got {unpacked:,}",
            hint="write the archive without compression",
        )


_REFERENCE = re.compile(r"env:[A-Za-z_][A-Za-z0-9_]*|file:.+")


def is_reference(text: str) -> bool:
    """True if a text is a reference to a secret."""
    return _REFERENCE.fullmatch(text) is not None


def secret(reference: str) -> str:
    """Read the secret that `env:NAME` or `file:PATH` refers to."""
    kind, _, name = reference.partition(":")
    if kind == "file":
        return secret_line(Path(name))
    value = os.environ.get(name, "")
    if not value:
        raise ConfigError(
            f"env:{name}: expected the environment variable {name}, got none",
            hint="set it where stepvad is started, for systemd with EnvironmentFile=",
        )
    return value


def secret_line(path: Path, what: str = "a secret") -> str:
    """Read the single line of a file; raise if others may read or write it."""
    try:
        mode = path.stat().st_mode
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = os_reason(error) if isinstance(error, OSError) else "not UTF-8 text"
        raise ConfigError(
            f"{path}: expected a file with {what}, got: {reason}",
            hint="check the path and its permissions",
        ) from None
    if os.name == "posix" and mode & (stat.S_IROTH | stat.S_IWOTH):
        raise ConfigError(
            f"{path}: expected a file that others cannot read, got mode {stat.S_IMODE(mode):03o}",
            hint=f"chmod 600 {path}",
        )
    if not text or "\n" in text:
        raise ConfigError(
            f"{path}: expected one line, {what}, got {len(text.splitlines())}",
            hint=f"write {what} and nothing else",
        )
    return text


HIDDEN = "***"
SECRET_NAME = "pass|pwd|token|secret|auth|key|sig|credential"
_USERINFO = re.compile(r"(?<=://)[^\s'\"<>]*@")
_QUERY = re.compile(rf"([?&;][^=&\s]*(?:{SECRET_NAME})[^=&\s]*=)[^&\s'\"<>]*", re.IGNORECASE)
_HEADER = re.compile(r"(authorization\s*[:=]\s*)[^\r\n]*", re.IGNORECASE)
_DIRECTORIES = re.compile(r"(?:(?<=file:)|(?<![\w/:.\]}]))/(?:[^\s/:,'\"]+/)+")


def hide_directories(text: str) -> str:
    """Return the text with paths shortened to the names of their files, as a page shows them."""
    return _DIRECTORIES.sub("", text)


def redact(text: str) -> str:
    """Return the text with the credentials of every address and request hidden."""
    text = _USERINFO.sub(f"{HIDDEN}@", text)
    text = _QUERY.sub(rf"\g<1>{HIDDEN}", text)
    return _HEADER.sub(rf"\g<1>{HIDDEN}", text)
