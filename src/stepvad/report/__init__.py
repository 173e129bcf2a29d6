"""One page for a scored clip: when, who, what was unusual, and how it looked, without a pixel."""

from stepvad.report.incidents import Incident, investigate
from stepvad.report.page import Case, render

__all__ = ["Case", "Incident", "investigate", "render"]
