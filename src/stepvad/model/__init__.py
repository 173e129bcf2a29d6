"""The paper: windows to PC-space (Eq. 6), an energy (Fig. 3) trained on Eq. 7, a score (Eq. 8)."""
