"""HTML report of a scored clip: when, who and what was unusual, without any video image."""

from stepvad.report.page import ReportedClip, render
from stepvad.report.timeline import Incident, investigate

__all__ = ["Incident", "ReportedClip", "investigate", "render"]
