"""HTML report of a scored clip: when, who and what was unusual, without any video image."""

from stepvad.report.incidents import Incident, investigate
from stepvad.report.page import ReportedClip, render

__all__ = ["Incident", "ReportedClip", "investigate", "render"]
