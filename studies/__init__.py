"""Studies: what the documentation's figures are measured with. In the repository, not in the wheel.

Each module here is a study, run as `python -m studies NAME`; sub-packages hold what several share.
"""
