"""A wall clock of its own for a site and its children, and a disk that fails writes."""

from __future__ import annotations

import mmap
import os
import struct
import subprocess
from pathlib import Path

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *shared;  // seconds that the clock is ahead; whether writes fail
static int (*real)(clockid_t, struct timespec *);
static const char *data;

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("FAULTS_SHARED");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    data = getenv("FAULTS_DATA");
    if (file < 0) return;
    void *place = mmap(NULL, 2 * sizeof *shared, PROT_READ, MAP_SHARED, file, 0);
    if (place != MAP_FAILED) shared = place;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = real ? real(id, now) : (int)syscall(SYS_clock_gettime, id, now);
    if (!failed && shared && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        now->tv_sec += shared[0];
    return failed;
}

int gettimeofday(struct timeval *now, void *zone) {
    struct timespec t;
    int failed = clock_gettime(CLOCK_REALTIME, &t);
    (void)zone;
    if (!failed) { now->tv_sec = t.tv_sec; now->tv_usec = t.tv_nsec / 1000; }
    return failed;
}

time_t time(time_t *place) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    if (place) *place = t.tv_sec;
    return t.tv_sec;
}

static int fails(int file) {
    char link[64], path[PATH_MAX];
    ssize_t n;
    if (!shared || !shared[1] || !data) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    n = readlink(link, path, sizeof path - 1);
    if (n <= 0) return 0;
    path[n] = 0;
    if (strncmp(path, data, strlen(data))) return 0;
    errno = EIO;
    return 1;
}

#define FAIL(type, name, types, names) type name types { \
    static type (*next) types; \
    if (!next) next = (type (*) types)dlsym(RTLD_NEXT, #name); \
    return fails(file) ? -1 : next names; }
FAIL(ssize_t, write, (int file, const void *b, size_t n), (file, b, n))
FAIL(ssize_t, pwrite, (int file, const void *b, size_t n, off_t at), (file, b, n, at))
FAIL(ssize_t, pwrite64, (int file, const void *b, size_t n, off64_t at), (file, b, n, at))
FAIL(int, fsync, (int file), (file))
FAIL(int, fdatasync, (int file), (file))
"""
# libfaketime will not do: with it and a true monotonic clock `time.sleep` of Python fails


class Shim:
    """What a site and its children have instead of some calls of the C library.

    The switches are in shared memory: a process without a file handle sees them change, too.
    """

    def __init__(self, directory: Path, data: Path) -> None:
        source, self._library = directory / "shim.c", directory / "shim.so"
        self._file, self._data = directory / "shim", data
        source.write_text(SOURCE)
        words = ["cc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(source), "-ldl"]
        subprocess.run(words, check=True)
        self._file.write_bytes(bytes(16))
        with self._file.open("r+b") as file:
            self._shared = mmap.mmap(file.fileno(), 16)

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process use it."""
        names = {"FAULTS_SHARED": str(self._file), "FAULTS_DATA": os.path.realpath(self._data)}
        return {"LD_PRELOAD": str(self._library), **names}

    def set_ahead(self, seconds: int) -> None:
        """Put the wall clock forward by that much, or right with 0."""
        self._shared[:8] = struct.pack("q", seconds)

    def fail_writes(self, failing: bool) -> None:
        """Have every write and sync below the data directory fail, or work again."""
        self._shared[8:] = struct.pack("q", failing)
