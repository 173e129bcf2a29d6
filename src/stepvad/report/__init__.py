"""HTML report of a scored clip: when, who and what was unusual, without any video image."""

from stepvad.report.incidents import Incident, investigate
from stepvad.report.page import Case, render

__all__ = ["Case", "Incident", "investigate", "render"]
