"""Decode the frames of one camera in its own process."""

from __future__ import annotations

import logging
import threading
import time
from itertools import count
from pathlib import Path

from stepvad.errors import StepvadError
from stepvad.site.intake.buffer_lending import BufferBorrower, BufferLender
from stepvad.site.intake.camera_states import CameraStates
from stepvad.site.intake.child_messages import (
    ConnectionAttempt,
    FrameHeader,
    PoolRequest,
    StatusMessage,
    decode,
    encode,
)
from stepvad.site.intake.frame_buffers import SharedImage
from stepvad.site.intake.frame_queues import FrameQueues, QueuedFrame
from stepvad.site.processes import ChildPipe, ChildProcess, HungError, SupervisedProcess
from stepvad.site.settings.sections import CameraSettings
from stepvad.site.slots import JUMP_S, PlayPace, SlotAnchor, TimeSlots
from stepvad.site.stages import Form
from stepvad.site.status import LiveStatus
from stepvad.video.camera import LONGEST_ATTEMPT_S, Camera, StateChange
from stepvad.video.source import Frame as Picture
from stepvad.video.source import open_footage

logger = logging.getLogger(__name__)

NO_FRAME_S = 20.0
"""If an online stream sends nothing for this long, its decoder counts as hung."""
NO_ATTEMPT_S = 4 * LONGEST_ATTEMPT_S
"""The same for a stream that is not online, which sends its attempts, and for a file."""
WAIT_S = 0.2


class _Sender:
    """Sends the frames of a camera, one per time slot."""

    def __init__(self, site: ChildPipe, rate: float) -> None:
        self._site = site
        self._buffers = BufferBorrower(site)
        self._rate = rate
        self._slots, self._anchor = TimeSlots(rate), SlotAnchor(rate)
        self._epoch: int | None = None
        self._skipped = 0
        self._dropped = 0
        self._without_buffer = 0

    def say(self, message: StatusMessage | ConnectionAttempt) -> None:
        self._site.send(encode(message))

    def frame(self, picture: Picture, dropped: int = 0) -> None:
        """Send a frame unless its slot is taken or no buffer is free.

        `dropped` counts all frames dropped so far.
        """
        arrived = picture.arrived
        if picture.epoch != self._epoch:
            self._epoch = picture.epoch
            self._slots, self._anchor = TimeSlots(self._rate), SlotAnchor(self._rate)
        slot = self._slots.place(picture.pts, arrived)
        if slot is None:
            self._skipped += 1
            return
        wall0 = self._anchor.wall0(slot, picture.wall)
        buffer = self._buffers.write(picture.image)
        if buffer is None:
            self._without_buffer += 1
            return
        height, width, _ = picture.image.shape
        header = FrameHeader(
            connection=self._epoch,
            wall0=wall0,
            slot=slot,
            arrived=arrived,
            pool=buffer.pool,
            buffer=buffer.number,
            shape=(height, width, 3),
            shed=dropped - self._dropped + self._without_buffer,
            skipped=self._skipped,
        )
        self._skipped, self._without_buffer, self._dropped = 0, 0, dropped
        self._site.send(encode(header))


def capture(site: ChildPipe, camera: CameraSettings) -> None:
    """Main loop of a capture process: send frames until the pipe closes or the file ends."""
    sender = _Sender(site, camera.rate)
    try:
        if camera.is_live:
            _stream(camera, sender)
        else:
            _file(camera, sender)
    except StepvadError as error:
        sender.say(StatusMessage("failed", str(error), over=True))


def _stream(camera: CameraSettings, sender: _Sender) -> None:
    logging.getLogger("stepvad.video.camera").setLevel(logging.ERROR)  # the site logs the states

    def on_state(change: StateChange) -> None:
        sender.say(StatusMessage(change.state, change.reason))

    def on_attempt() -> None:
        sender.say(ConnectionAttempt())

    source = Camera(camera.name, camera.live_source(), on_state=on_state, on_attempt=on_attempt)
    for picture in source:
        sender.frame(picture, source.counts.dropped)


def _file(camera: CameraSettings, sender: _Sender) -> None:
    """Play a video in real time, without the gaps where its timestamps jump."""
    video = open_footage(Path(camera.url), picture_rate=camera.picture_rate)
    while True:
        pace, is_online = PlayPace(camera.rate, jump_s=max(JUMP_S, 2 / camera.picture_rate)), False
        for picture in video:
            if not is_online:
                height, width = picture.image.shape[:2]
                sender.say(StatusMessage("online", f"{width} x {height} pixels"))
                is_online = True
            at = picture.number / (video.fps or camera.rate)
            due = pace.due(at if picture.pts is None else picture.pts, time.monotonic())
            time.sleep(max(due - time.monotonic(), 0.0))
            sender.frame(_now(picture))
        if not camera.loop:
            sender.say(StatusMessage("offline", "the file is over", over=True))
            return
        sender.say(StatusMessage("offline", "the file begins again"))


def _now(picture: Picture) -> Picture:
    """The same frame, timestamped now instead of when it was decoded."""
    return Picture(
        picture.camera, picture.number, picture.pts, time.time(), picture.image, picture.epoch
    )


class Capture:
    """Supervises a camera's capture process and queues its frames."""

    def __init__(
        self,
        camera: CameraSettings,
        form: Form,
        frames: FrameQueues,
        states: CameraStates,
        status: LiveStatus,
        *,
        buffers: int,
    ) -> None:
        """`buffers` hold the images of its frames, from capture until people are found."""
        self.camera = camera
        self.process = SupervisedProcess(f"capture-{camera.name}", form, self, capture, camera)
        self._frames, self._states, self._status = frames, states, status
        self._buffers = buffers
        self._numbers = count()
        self._processes = 0

    def use(self, camera: CameraSettings) -> None:
        """Take other settings of the camera for the next run of its process, which has stopped."""
        self.camera = camera
        self._states.begin_again(camera.name, "it is opened again with other settings")
        self.process.begin_again(camera)

    def died(self, reason: str) -> None:
        """Report a process that exited; it is restarted."""
        name = self.camera.name
        self._status.count(name, "restarts")
        logger.warning("camera %s: capture %s, restarted", name, reason)
        self._states.report(name, StatusMessage("offline", f"its capture process {reason}"))

    def serve(self, child: ChildProcess, stopping: threading.Event) -> bool:
        """Queue the frames and report the states of the process until it finishes or is stopped."""
        self._processes += 1
        lender = BufferLender(child, self._buffers)
        try:
            return self._serve(child, lender, stopping)
        finally:
            lender.retire()

    def _serve(self, child: ChildProcess, lender: BufferLender, stopping: threading.Event) -> bool:
        silent_s, is_online = 0.0, False
        while not stopping.is_set():
            data = child.receive(WAIT_S)
            if data is None:
                silent_s += WAIT_S  # not by the clock, which goes on while all processes pause
                self._check_silence(silent_s, is_online)
                lender.lend_freed()
                continue
            silent_s, message = 0.0, decode(data)
            if isinstance(message, FrameHeader):
                self._put(message, lender.image(message))
            elif isinstance(message, PoolRequest):
                lender.offer(message)
            elif isinstance(message, StatusMessage):
                is_online = message.state == "online" and self.camera.is_live
                self._states.report(self.camera.name, message)
                if message.over:
                    return True
            lender.lend_freed()
        return True

    def _check_silence(self, silent_s: float, is_online: bool) -> None:
        """Raise `HungError` if the process sent nothing but keep-alives for too long."""
        camera = self.camera
        limit_s = max(
            NO_FRAME_S if is_online else NO_ATTEMPT_S, 3 / camera.rate, 3 / camera.picture_rate
        )
        if silent_s > limit_s:
            raise HungError(f"showed nothing for {limit_s:g} s")

    def _put(self, header: FrameHeader, image: SharedImage) -> None:
        name = self.camera.name
        self._status.count(name, "shed", header.shed)
        self._status.count(name, "skipped", header.skipped)
        height, width, _ = header.shape
        self._frames.put(
            QueuedFrame(
                camera=name,
                number=next(self._numbers),
                connection=self._processes * 1_000_000 + header.connection,
                wall0=header.wall0,
                slot=header.slot,
                arrived=header.arrived,
                size=(width, height),
                image=image,
            )
        )
