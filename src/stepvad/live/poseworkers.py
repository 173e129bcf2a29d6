"""Processes that find people in pictures, for all cameras together."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

from stepvad.errors import StepvadError
from stepvad.live.child import Child, Kept
from stepvad.live.lanes import Frame, Lanes
from stepvad.live.logs import Form
from stepvad.live.sections import PoseSettings
from stepvad.video.people import People
from stepvad.video.pixels import Image
from stepvad.video.pose import PoseEstimator, open_estimator

logger = logging.getLogger(__name__)

BATCH_S = 0.4
"""A batch is made smaller until it takes no longer: frames must not wait for others."""
READY = "ready"


def find_people(pipe: Connection[Any, Any], settings: PoseSettings) -> None:
    """Answer pictures with the people in them, until the pipe closes."""
    try:
        estimator = open_estimator(
            settings.detector, settings.pose, runtime=settings.engine, threads=settings.threads
        )
    except StepvadError as error:
        pipe.send(str(error))
        return
    pipe.send(READY)
    while True:
        shapes = pipe.recv()
        images = [np.frombuffer(pipe.recv_bytes(), np.uint8).reshape(shape) for shape in shapes]
        pipe.send(_look(estimator, images))


def _look(estimator: PoseEstimator, images: Sequence[Image]) -> list[People | None]:
    """The people of every picture; None where one cannot be looked at."""
    try:
        return [*estimator.estimate(images, estimator.detect(images))]
    except (StepvadError, ValueError, RuntimeError, ArithmeticError) as error:
        if len(images) > 1:
            return [people for image in images for people in _look(estimator, [image])]
        logger.warning("a picture could not be looked at: %s", error)
        return [None]


class PoseWorker:
    """One such process, started again when it dies; its frames then come first again."""

    def __init__(
        self,
        number: int,
        settings: PoseSettings,
        form: Form,
        lanes: Lanes,
        *,
        restarted: Callable[[], None],
        failed: Callable[[str], None],
    ) -> None:
        self._name = f"poses-{number}"
        self.process = Kept(
            self._name, form, find_people, settings, serve=self._serve, died=self._died
        )
        self._settings, self._lanes = settings, lanes
        self._restarted, self._failed = restarted, failed

    def _died(self, code: int, again: bool) -> None:
        self._restarted()
        if again:
            logger.warning("%s ended with code %s, started again", self._name, code)
        else:
            self._failed(f"pose workers died too often, the last time with code {code}")

    def _serve(self, child: Child) -> bool:
        """Give it pictures until it is told to stop; whether nothing will follow."""
        pipe, stopping = child.pipe, self.process.stopping
        while not pipe.poll(0.2):
            if stopping.is_set():
                return True
        answer = pipe.recv()
        if answer != READY:
            self._failed(answer)
            return True
        frame_s = BATCH_S  # until it is known
        while not stopping.is_set():
            most = min(max(int(BATCH_S / frame_s), 1), self._settings.batch)
            frames = self._lanes.take(most, timeout_s=0.2)
            if frames:
                began = time.monotonic()
                self._ask(pipe, frames)
                each_s = (time.monotonic() - began) / len(frames)
                frame_s += 0.2 * (each_s - frame_s)
        return True

    def _ask(self, pipe: Connection[Any, Any], frames: Sequence[Frame]) -> None:
        try:
            images = [frame.image for frame in frames if frame.image is not None]
            pipe.send([image.shape for image in images])
            for image in images:
                pipe.send_bytes(image.data.cast("B"))
            found = pipe.recv()
        except BaseException:
            self._lanes.give_back(frames)
            raise
        for frame, people in zip(frames, found, strict=True):
            self._lanes.finish(frame, people)
