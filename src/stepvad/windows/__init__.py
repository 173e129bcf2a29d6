"""Poses of any number of cameras in, standardised windows out (Sec. 3, Sec. 4.1).

`body` prepares poses and standardises windows, `views` say what a window shows. `runs` holds the
only gap rule and cuts the windows of a clip by the clock; `live` takes poses as they arrive, of one
camera or of many.
"""
