"""Pose workers: processes that find people in the images of all cameras."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from stepvad.errors import DataError, StepvadError
from stepvad.people import LastPoses, People
from stepvad.retries import Backoff
from stepvad.site.intake.camera_followers import CameraFollowers
from stepvad.site.intake.camera_states import CameraStates
from stepvad.site.intake.child_messages import (
    ImagePlace,
    ImagesHeader,
    PeopleHeader,
    Ready,
    decode,
    decode_last_poses,
    decode_people,
    encode,
    encode_last_poses,
    encode_people,
)
from stepvad.site.intake.frame_buffers import map_images, place_images
from stepvad.site.intake.frame_queues import FrameQueues, QueuedFrame
from stepvad.site.processes import ChildPipe, ChildProcess, HungError, SupervisedProcess
from stepvad.site.settings.sections import PoseSettings, SiteSettings
from stepvad.site.stages import Repeats, repeated
from stepvad.site.status import LiveStatus
from stepvad.video.estimators import PoseEstimator, open_estimator
from stepvad.video.following import detect_and_recover
from stepvad.video.networks import choose_engine
from stepvad.video.source import Image

logger = logging.getLogger(__name__)

BATCH_S = 0.4
"""Target duration of a batch; its size adapts, so frames do not wait long for each other."""
LOAD_S = 600.0
"""Deadline for loading the networks, including a download."""
ANSWER_S = 20.0
"""Deadline for a batch of images; a worker that takes longer counts as hung."""
HANGS_S = 2.5
"""A worker that is silent for longer, keep-alives included, is said to hang."""
FIRST_REFUSAL_S, LONGEST_REFUSAL_S = 1.0, 30.0
LAST_S = 1.0
"""Deadline for the last response when the site stops."""
WAIT_S = 0.2


def find_people(site: ChildPipe, settings: PoseSettings) -> None:
    """Main loop of a worker: read images and send back the people, until the pipe closes."""
    try:
        engine = choose_engine(settings.engine, settings.precision, settings.device)
        estimator = open_estimator(
            settings.detector, settings.pose, runtime=engine, threads=settings.threads
        )
    except StepvadError as error:
        site.send(encode(Ready(str(error) or type(error).__name__)))
        return
    site.send(encode(Ready()))
    lines = Repeats()
    while True:
        _answer(site, estimator, lines)


def _answer(site: ChildPipe, estimator: PoseEstimator, lines: Repeats) -> None:
    """Find the people in one batch; its images are unmapped on return."""
    header = decode(site.receive())
    if not isinstance(header, ImagesHeader):
        raise DataError(f"site: expected images, got {header.type}")
    last = decode_last_poses(header, site.receive())
    images = map_images(header.images, site.receive_fds(header.files))
    site.send(*encode_people(_look(estimator, images, last, lines)))


def _look(
    estimator: PoseEstimator, images: Sequence[Image], last: Sequence[LastPoses], lines: Repeats
) -> list[People | None]:
    """Find the people in every image; None for an image that fails."""
    try:
        return [*detect_and_recover(estimator, images, last)]
    except (StepvadError, ValueError, RuntimeError, ArithmeticError) as error:
        if len(images) > 1:
            pairs = zip(images, last, strict=True)
            return [one for image, few in pairs for one in _look(estimator, [image], [few], lines)]
        held = lines.admit(type(error).__name__)
        if held is not None:
            logger.warning("a frame could not be processed: %s%s", error, repeated(held))
        return [None]


def _end(child: ChildProcess, error: BaseException) -> None:
    """End a failed worker: it may still read its images, and they must not change under it."""
    if isinstance(error, HungError):
        child.kill()
    else:
        child.stop()


class PoseWorker:
    """Supervises one worker process: takes frames from the queues and returns the people found.

    Frames of a process that dies or hangs are put back at the front of the queue.
    """

    def __init__(
        self,
        number: int,
        settings: SiteSettings,
        frames: FrameQueues,
        states: CameraStates,
        status: LiveStatus,
        cameras: Sequence[str],
        followers: CameraFollowers,
    ) -> None:
        """`cameras` are those whose images it processes; workers share followers."""
        self.number = number
        self.process = SupervisedProcess(
            f"poses-{number}", settings.logs, self, find_people, settings.pose
        )
        self._settings, self._frames = settings.pose, frames
        self._states, self._status, self._cameras = states, status, cameras
        self._followers = followers
        self._refusals = Backoff(FIRST_REFUSAL_S, LONGEST_REFUSAL_S)

    def died(self, reason: str) -> None:
        """Count and log a process that exited; it is restarted."""
        for camera in self._cameras:
            self._status.count(camera, "restarts")
        logger.warning("%s %s, restarted", self.process.name, reason)
        self._say_hanging(True)

    def serve(self, child: ChildProcess, stopping: threading.Event) -> bool:
        """Send images to the process until stopped; False if it must be restarted."""
        if not self._is_ready(child, stopping):
            return stopping.is_set()
        frame_s = BATCH_S  # initial estimate
        while not stopping.is_set():
            child.receive(0.0)  # raises if the process died, even while idle
            most = min(max(int(BATCH_S / frame_s), 1), self._settings.batch)
            frames = self._frames.take(most, timeout_s=WAIT_S)
            if frames:
                began = time.monotonic()
                self._ask(child, frames, stopping)
                each_s = (time.monotonic() - began) / len(frames)
                frame_s += 0.2 * (each_s - frame_s)
        return True

    def _say_hanging(self, hangs: bool) -> None:
        self._status.hang(self.process.name, self._cameras, hangs)

    def _is_ready(self, child: ChildProcess, stopping: threading.Event) -> bool:
        """Wait until the networks are loaded; return whether they are."""
        answer = self._answer(child, LOAD_S, stopping)
        if answer is None:
            return False
        message = decode(answer)
        if isinstance(message, Ready) and not message.problem:
            self._states.ready(self.number)
            self._refusals.reset()
            self._say_hanging(False)
            return True
        reason = message.problem if isinstance(message, Ready) else "it said something else"
        self._states.refuse(self.number, reason)
        until = time.monotonic() + self._refusals.next_s()
        while time.monotonic() < until and not stopping.wait(WAIT_S):
            self.process.heartbeat.beat()
        return False

    def _ask(
        self, child: ChildProcess, frames: Sequence[QueuedFrame], stopping: threading.Event
    ) -> None:
        try:
            images = [frame.image for frame in frames if frame.image is not None]
            last = [self._followers.last_poses(frame) for frame in frames]
            places, fds = place_images(images)
            child.send(*encode_last_poses(places, last), fds=fds)
            found = self._people(child, places, stopping)
        except BaseException as error:
            _end(child, error)
            self._frames.give_back(frames)
            raise
        for frame, people in zip(frames, found, strict=True):
            if people is not None:
                self._followers.update(frame, people)
            self._frames.finish(frame, people)

    def _people(
        self, child: ChildProcess, images: Sequence[ImagePlace], stopping: threading.Event
    ) -> list[People | None]:
        """The people in every image."""
        answer = self._answer(child, ANSWER_S, stopping)
        if answer is None:  # stopping: the result is not needed
            child.kill()
            return [None] * len(images)
        self._say_hanging(False)
        header = decode(answer)
        if not isinstance(header, PeopleHeader) or len(header.people) != len(images):
            raise HungError("answered something else")
        return decode_people(header, child.body())

    def _answer(
        self, child: ChildProcess, within_s: float, stopping: threading.Event
    ) -> bytes | None:
        """The next message; None if the site stops and none arrives within `LAST_S`."""
        began = time.monotonic()
        stopped: float | None = None
        while (data := child.receive(WAIT_S)) is None:
            now = time.monotonic()
            if within_s == ANSWER_S and (child.silent_s > HANGS_S or now - began > ANSWER_S / 2):
                self._say_hanging(True)
            if stopping.is_set():
                stopped = stopped or now
                if now - stopped > LAST_S:
                    return None
            elif now - began > within_s:
                raise HungError(f"gave no answer for {within_s:g} s")
        return data
