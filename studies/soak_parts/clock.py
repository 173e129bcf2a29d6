"""A wall clock of its own for a site and its children, which can be put forward and back."""

from __future__ import annotations

import mmap
import struct
import subprocess
from pathlib import Path

VARIABLE = "SOAK_CLOCK"
"""Names the file with the seconds that the wall clock is ahead."""
SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *ahead_s;
static int (*real)(clockid_t, struct timespec *);

__attribute__((constructor)) static void start(void) {
    const char *path = getenv("SOAK_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    if (file < 0) return;
    void *place = mmap(NULL, sizeof *ahead_s, PROT_READ, MAP_SHARED, file, 0);
    if (place != MAP_FAILED) ahead_s = place;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int failed = real ? real(id, now) : (int)syscall(SYS_clock_gettime, id, now);
    if (!failed && ahead_s && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        now->tv_sec += *ahead_s;
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
"""
"""libfaketime will not do: with it and a true monotonic clock `time.sleep` of Python fails."""


class WallClock:
    """The seconds by which the wall clock of a process and its children is ahead.

    The offset is in shared memory: a process without a file handle sees it change, too.
    """

    def __init__(self, directory: Path) -> None:
        source, self._library = directory / "clock.c", directory / "clock.so"
        self._file = directory / "clock"
        source.write_text(SOURCE)
        words = ["cc", "-O2", "-shared", "-fPIC", "-o", str(self._library), str(source), "-ldl"]
        subprocess.run(words, check=True)
        self._file.write_bytes(struct.pack("q", 0))
        with self._file.open("r+b") as file:
            self._offset = mmap.mmap(file.fileno(), 8)

    @property
    def environment(self) -> dict[str, str]:
        """What makes a process use this clock."""
        return {"LD_PRELOAD": str(self._library), VARIABLE: str(self._file)}

    def set_ahead(self, seconds: int) -> None:
        """Put the clock forward by that much, or right with 0."""
        self._offset[:] = struct.pack("q", seconds)
