"""Publish events to an MQTT broker, under topics like those of Frigate."""

from __future__ import annotations

import json
import logging
import secrets as random_words
import ssl
import threading
from collections.abc import Callable, Iterable
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from stepvad.codec import decode, encode
from stepvad.errors import DataError, MissingExtraError
from stepvad.events.record import DeliveryError, MarkMessage
from stepvad.files import secret
from stepvad.site.load import LoadState
from stepvad.site.stages import Repeats
from stepvad.site.status import CaptureState

if TYPE_CHECKING:
    from paho.mqtt.client import Client, MQTTMessage, MQTTMessageInfo

    from stepvad.events.record import Record, SinkMessage
    from stepvad.events.rules import ChangeKind
    from stepvad.site.settings.sections import MqttSettings

logger = logging.getLogger(__name__)

KEEPALIVE_S = 15
"""Keep-alive interval; after 1.5 times as long without a packet the broker sends the last will."""
RECONNECT_S = (1, 5)
"""Shortest and longest delay before a reconnect."""
ANSWER_S = 5.0
"""Timeout for a connection and for the acknowledgement of a message."""
QOS = 1
MARKS = "marks"
"""Topic below the prefix on which people judge events."""
MOST_BYTES = 4096
"""Maximum size of a packet with a mark: the broker sends no longer ones (MQTT 5)."""


class Mqtt:
    """Publishes each message and waits for the broker's acknowledgement.

    Retained messages (whether the site and its cameras are online, and whether an event is open)
    are republished on every connection.
    """

    def __init__(
        self,
        settings: MqttSettings,
        *,
        site: str,
        cameras: Iterable[str],
        opened: Iterable[Record] = (),
    ) -> None:
        self.name = "mqtt"
        self.on_connected: Callable[[], None] = lambda: None
        """Called after every (re)connect."""
        self.on_mark: Callable[[MarkMessage], None] = lambda mark: None
        """Called with every mark that arrives, if the settings accept marks; must not block."""
        self._takes_marks = settings.marks
        self._prefix, self._discovery = settings.prefix, settings.discovery_prefix
        self._site, self._tls = site, settings.tls
        self._status: dict[str, CaptureState] = dict.fromkeys(cameras, "offline")
        self._load: dict[str, LoadState] = dict.fromkeys(self._status, "ok")
        self._open: dict[str, set[str]] = {camera: set() for camera in self._status}
        """Ids of open events by camera."""
        for record in opened:
            self._open.setdefault(record.camera, set()).add(record.id)
        self._lock = threading.Lock()
        self._connected = threading.Event()
        self._reason = "no answer yet"
        self._lines = Repeats()
        self._place = f"{settings.host}:{settings.port}"
        self._client = self._connecting(settings)
        self._client.loop_start()

    def _connecting(self, settings: MqttSettings) -> Client:
        try:
            from paho.mqtt.client import Client
            from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
            from paho.mqtt.packettypes import PacketTypes
            from paho.mqtt.properties import Properties
        except ImportError:
            raise MissingExtraError("MQTT", "live") from None
        # who only publishes gets nothing, and any broker will do; marks need a limit
        limits = None
        if self._takes_marks:
            limits = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            limits.MaximumPacketSize = MOST_BYTES
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"stepvad-{self._site}-{random_words.token_hex(4)}",
            protocol=MQTTProtocolVersion.MQTTv5 if limits else MQTTProtocolVersion.MQTTv311,
        )
        if settings.username is not None:
            password = secret(settings.password) if settings.password else None
            client.username_pw_set(settings.username, password)
        if settings.tls:
            client.tls_set_context(ssl.create_default_context())
        client.reconnect_delay_set(*RECONNECT_S)
        # the broker says so once it hears nothing more of this site
        client.will_set(f"{self._prefix}/available", "offline", QOS, retain=True)
        client.on_connect = self._on_connect
        client.on_connect_fail = self._on_connect_fail
        client.on_disconnect = self._on_disconnect
        client.on_message = self._on_message
        client.connect_async(settings.host, settings.port, KEEPALIVE_S, properties=limits)
        return client

    def send(self, kind: ChangeKind, message: SinkMessage) -> None:
        """Publish one message and wait until the broker has it."""
        if not self._connected.wait(ANSWER_S):
            raise DeliveryError(
                f"broker {self._place}: expected a connection, got: {self._reason}",
                hint="check that it runs, the port, and user name and password",
            )
        camera = message.after.camera
        with self._lock:
            opened = self._open.setdefault(camera, set())
            if message.after.is_open:
                opened.add(message.after.id)
            else:  # an end, or words that came after it
                opened.discard(message.after.id)
            # each change as an event, and as the state of its camera
            sent = [
                self._publish("events", encode(message).decode()),
                self._publish(f"{camera}/anomaly", self._anomaly(camera), retain=True),
            ]
        for one in sent:
            self._wait(one)

    def status(self, camera: str, state: CaptureState) -> None:
        """Publish the state of a camera; never blocks, even if the broker is unreachable."""
        with self._lock:
            self._status[camera] = state
            self._open.setdefault(camera, set())
            if self._connected.is_set():
                self._publish(f"{camera}/status", state, retain=True)

    def load(self, camera: str, state: LoadState) -> None:
        """Publish whether a camera is overloaded; never blocks."""
        with self._lock:
            self._load[camera] = state
            if self._connected.is_set():
                self._publish(f"{camera}/load", state, retain=True)

    def close(self) -> None:
        """Publish that the site is offline, and disconnect."""
        # a last word for those who watch; without a connection the last will says it
        if self._connected.is_set():
            with self._lock:
                last = [
                    self._publish(f"{camera}/status", "offline", retain=True)
                    for camera in self._status
                ]
                last.append(self._publish("available", "offline", retain=True))
            for one in last:
                try:
                    self._wait(one)
                except DeliveryError:
                    break  # the broker sends the last will instead
        self._client.disconnect()
        self._client.loop_stop()

    def _anomaly(self, camera: str) -> str:
        return "ON" if self._open.get(camera) else "OFF"

    def _publish(self, topic: str, payload: str, *, retain: bool = False) -> MQTTMessageInfo:
        return self._client.publish(f"{self._prefix}/{topic}", payload, QOS, retain=retain)

    def _wait(self, one: MQTTMessageInfo) -> None:
        try:
            one.wait_for_publish(ANSWER_S)
            arrived = one.is_published()
        except (RuntimeError, ValueError) as error:
            raise DeliveryError(
                f"broker {self._place}: expected to publish, got: {error}"
            ) from None
        if not arrived:
            raise DeliveryError(
                f"broker {self._place}: expected an acknowledgement, got none in {ANSWER_S:g} s"
            )

    def _on_connect(
        self, client: Client, userdata: object, flags: object, reason: Any, properties: object
    ) -> None:
        if reason.is_failure:
            self._reason = str(reason)
            return
        # what a broker retains may be from before a restart, of the broker or of the site
        with self._lock:
            for camera, state in self._status.items():
                self._publish(f"{camera}/status", state, retain=True)
                self._publish(f"{camera}/load", self._load.get(camera, "ok"), retain=True)
                self._publish(f"{camera}/anomaly", self._anomaly(camera), retain=True)
                if self._discovery:  # of Home Assistant
                    found = discovery_topics(self._prefix, self._discovery, self._site, camera)
                    for topic, payload in found.items():
                        client.publish(topic, payload, QOS, retain=True)
            self._publish("available", "online", retain=True)
            self._connected.set()
        if self._takes_marks:
            client.subscribe(f"{self._prefix}/{MARKS}", QOS)
        self.on_connected()

    def _on_message(self, client: Client, userdata: object, message: MQTTMessage) -> None:
        """Hand on a mark; what is none is logged and ignored."""
        try:
            mark = decode(MarkMessage, message.payload, "mark")
        except DataError as error:
            held = self._lines.admit("mark")
            if held is not None:
                logger.warning("a message on %s is ignored: %s", message.topic, str(error)[:200])
            return
        self.on_mark(mark)

    def _on_connect_fail(self, client: Client, userdata: object) -> None:
        self._reason = "nobody who answers" + (" with a trusted certificate" if self._tls else "")

    def _on_disconnect(
        self, client: Client, userdata: object, flags: object, reason: Any, properties: object
    ) -> None:
        if self._connected.is_set():
            self._reason = f"the connection is lost ({reason})"
        self._connected.clear()


def discovery_topics(prefix: str, discovery: str, site: str, camera: str) -> dict[str, str]:
    """The retained messages by which Home Assistant discovers one camera, by topic."""
    state = f"{prefix}/{camera}"
    # a device for each camera, with three sensors
    node = f"stepvad_{site}_{camera}"
    site_is_up = {"topic": f"{prefix}/available"}
    camera_is_up = {
        "topic": f"{state}/status",
        "value_template": "{{ 'online' if value == 'online' else 'offline' }}",
    }
    while_up = {"availability": [site_is_up, camera_is_up], "availability_mode": "all"}
    hidden = {"entity_category": "diagnostic"}
    device = {
        "identifiers": [node],
        "name": f"{site} {camera}",
        "manufacturer": "stepvad",
        "model": "camera",
        "sw_version": version("stepvad"),
    }
    anomaly = {"name": "Anomaly", "device_class": "problem", **while_up}
    connection = {
        "name": "Connection",
        "device_class": "connectivity",
        **hidden,
        "value_template": "{{ 'ON' if value == 'online' else 'OFF' }}",
        "availability": [site_is_up],
    }
    overloaded = {
        "name": "Overloaded",
        "device_class": "problem",
        **hidden,
        **while_up,
        "value_template": "{{ 'OFF' if value == 'ok' else 'ON' }}",
    }
    sensors = {
        "anomaly": anomaly | {"payload_on": "ON", "payload_off": "OFF"},
        "status": connection,
        "load": overloaded,
    }
    return {
        f"{discovery}/binary_sensor/{node}/{topic}/config": json.dumps(
            facts
            | {"unique_id": f"{node}_{topic}", "state_topic": f"{state}/{topic}", "device": device}
        )
        for topic, facts in sensors.items()
    }
