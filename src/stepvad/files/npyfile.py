"""Untrusted NPY arrays and NPZ archives: no pickle, no more memory than the data needs."""

from __future__ import annotations

import math
import struct
import warnings
import zipfile
import zlib
from collections.abc import Iterable
from io import BytesIO
from tokenize import TokenError
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from stepvad.errors import DataError
from stepvad.files import bounded

MAGIC = npy.MAGIC_PREFIX
SUFFIX = ".npy"
COMPRESSIONS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Those that numpy writes; others can demand memory out of proportion to the archive."""
HINT = "the file may be cut off or damaged; copy it again"

_NPY_ERRORS = (
    *(EOFError, MemoryError, OverflowError, RecursionError, SyntaxError, TokenError),
    *(TypeError, ValueError, KeyError),
)
"""Errors of a damaged header: it is Python source, so any error of Python's parser."""
_ZIP_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError),
    *(EOFError, OSError, KeyError, ValueError, OverflowError, UnicodeError),
)


def array(data: bytes) -> NDArray[Any]:
    """Read the array of an NPY file; pickled objects are rejected because they could run code."""
    if not data.startswith(MAGIC):  # np.load would also accept other kinds of files
        raise DataError("expected an NPY array, got another kind of file", hint=HINT)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _check_size(data)
            found: NDArray[Any] = np.load(BytesIO(data), allow_pickle=False)
            return found
    except _NPY_ERRORS as error:
        raise DataError(f"expected an NPY array of numbers, got: {error}", hint=HINT) from error


def arrays(data: bytes, names: Iterable[str]) -> dict[str, NDArray[Any]]:
    """Read the arrays of these names from an NPZ archive."""
    try:
        with zipfile.ZipFile(BytesIO(data)) as archive:
            found = {name: archive.getinfo(name + SUFFIX) for name in names}
            _check_members(found.values(), len(data))
            raw = {name: archive.read(member) for name, member in found.items()}
    except _ZIP_ERRORS as error:
        raise DataError(f"expected an NPZ archive, got: {error}", hint=HINT) from error
    made = {}
    for name, content in raw.items():
        try:
            made[name] = array(content)
        except DataError as error:
            raise error.located(name) from error
    return made


def _check_size(data: bytes) -> None:
    """Reject a header that claims more or fewer bytes than follow it."""
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
    if unpacked > bounded.most_unpacked(size):
        raise DataError(
            f"expected arrays of up to {bounded.most_unpacked(size):,} bytes, got {unpacked:,}",
            hint="write the archive without compression",
        )
