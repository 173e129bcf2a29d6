"""A real RTSP server on the loopback interface that plays an H.264 file in a loop.

For the system's Python, which has GStreamer:
python3 rtsp_server.py FILE PORT [USER PASSWORD [CERTIFICATE KEY]]
"""
# mypy: ignore-errors

import sys

import gi

gi.require_version("Gst", "1.0")
gi.require_version("GstRtspServer", "1.0")
from gi.repository import Gio, GLib, Gst, GstRtspServer  # noqa: E402  # versions come first

PIPELINE = '( filesrc location="{}" ! matroskademux ! h264parse ! rtph264pay name=pay0 pt=96 )'


def rewind(bus, message, pipeline):
    """Play from the beginning again, at the end of a segment; not from the thread that streams."""
    GLib.idle_add(seek, pipeline, Gst.SeekFlags.SEGMENT)


def seek(element, flags):
    element.seek(1.0, Gst.Format.TIME, flags, Gst.SeekType.SET, 0, Gst.SeekType.NONE, -1)


def configure(factory, media):
    """Turn the end of the file into the end of a segment, which can be followed by another."""
    state = {"begun": False}

    def playing(media, gst_state):
        if state["begun"] or gst_state != Gst.State.PLAYING:
            return
        state["begun"] = True
        pipeline = media.get_element().get_parent()
        bus = pipeline.get_bus()
        bus.enable_sync_message_emission()
        bus.connect("sync-message::segment-done", rewind, pipeline)
        seek(pipeline, Gst.SeekFlags.FLUSH | Gst.SeekFlags.SEGMENT)

    media.connect("new-state", playing)


def authenticate(server, factory, user, password, *certificate):
    """Ask every client for a user name and password, over TLS if there is a certificate."""
    auth = GstRtspServer.RTSPAuth()
    if certificate:
        auth.set_tls_certificate(Gio.TlsCertificate.new_from_files(*certificate))
    token = GstRtspServer.RTSPToken()
    token.set_string("media.factory.role", "viewer")
    auth.add_basic(GstRtspServer.RTSPAuth.make_basic(user, password), token)
    server.set_auth(auth)
    permissions = GstRtspServer.RTSPPermissions()
    permissions.add_permission_for_role("viewer", "media.factory.access", True)
    permissions.add_permission_for_role("viewer", "media.factory.construct", True)
    factory.set_permissions(permissions)


def load_plugins(file):
    """Play a moment without a client: the first one gives up while a busy machine loads plugins."""
    pipeline = Gst.parse_launch(PIPELINE.format(file).strip("( )") + " ! fakesink")
    pipeline.set_state(Gst.State.PAUSED)
    pipeline.get_state(60 * Gst.SECOND)
    pipeline.set_state(Gst.State.NULL)


def main():
    file, port, *credentials = sys.argv[1:]
    Gst.init(None)
    load_plugins(file)
    server = GstRtspServer.RTSPServer()
    server.set_address("127.0.0.1")
    server.set_service(port)
    factory = GstRtspServer.RTSPMediaFactory()
    factory.set_launch(PIPELINE.format(file))
    factory.set_shared(False)  # a shared one hangs for all after a client that gave up
    factory.connect("media-configure", configure)
    if credentials:
        authenticate(server, factory, *credentials)
    server.get_mount_points().add_factory("/camera", factory)
    server.attach(None)
    sys.stdout.write("listening\n")
    sys.stdout.flush()
    GLib.MainLoop().run()


main()
