"""NPY arrays and NPZ archives of unknown origin: no pickle, and no more than the file holds."""

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
"""What numpy writes; others ask for memory that the archive need not have."""
HINT = "the file may be cut off or damaged; copy it again"

_NPY_ERRORS = (
    *(EOFError, MemoryError, OverflowError, RecursionError, SyntaxError, TokenError),
    *(TypeError, ValueError, KeyError),
)
"""How a damaged header fails: it is Python text, so wherever Python's parser does."""
_ZIP_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, struct.error, NotImplementedError, RuntimeError),
    *(EOFError, OSError, KeyError, ValueError, OverflowError, UnicodeError),
)


def array(data: bytes) -> NDArray[Any]:
    """The array of an NPY file; pickled objects are refused, since they could run code."""
    if not data.startswith(MAGIC):  # np.load would take other kinds of files too
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
    """The arrays of these names in an NPZ archive."""
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
    """Refuse a header that claims more or fewer bytes than follow it."""
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
    """Refuse an archive that unpacks to far more than it is."""
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
