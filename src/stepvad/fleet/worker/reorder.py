"""Deduplicate frames and restore the order in which the camera sent them."""

from __future__ import annotations

from stepvad.fleet.wire import Batch

DEPTH = 5
"""How many messages a late one may arrive behind."""


class Reorder:
    """Orders the batches of one connection by sequence number; holds early ones back."""

    def __init__(self, next_seq: int | None = None) -> None:
        self.next = next_seq
        """Number of the next expected frame; None before the first."""
        self.duplicates = 0
        """Frames that arrived twice or too late."""
        self.missed = 0
        """Frames that never arrived."""
        self._held: dict[int, Batch] = {}

    def __len__(self) -> int:
        """Batches held."""
        return len(self._held)

    def push(self, batch: Batch) -> list[Batch]:
        """Add a batch and return those that are now in order."""
        if self.next is None:
            # connections count from 0: earlier messages may still arrive
            self.next = 0 if batch.seq <= DEPTH * max(len(batch), 1) else batch.seq
        if batch.seq == self.next and not self._held:
            self.next = batch.end
            return [batch]
        known = self._held.get(batch.seq)
        if batch.end <= self.next or (known is not None and known.end >= batch.end):
            self.duplicates += len(batch)
            return []
        if known is not None:
            self.duplicates += len(known)
        self._held[batch.seq] = batch
        released = self._consecutive()
        if len(self._held) > DEPTH:
            released += self.skip()
        return released

    def skip(self) -> list[Batch]:
        """Give up on the next missing frames and return the held batches that follow."""
        released: list[Batch] = []
        if self._held and self.next is not None:
            first = min(self._held)
            self.missed += max(first - self.next, 0)
            self.next = max(self.next, first)
            released = self._consecutive()
        return released

    def flush(self) -> list[Batch]:
        """Return everything held, at the end of a connection."""
        released = []
        while self._held:
            released += self.skip()
        return released

    def leave_out(self, batch: Batch) -> int:
        """Skip past a batch and return how many of its frames were still due."""
        due = batch.seq if self.next is None else self.next
        self.next = max(due, batch.end)
        self._held = {seq: held for seq, held in self._held.items() if held.end > self.next}
        return max(batch.end - max(due, batch.seq), 0)

    def _consecutive(self) -> list[Batch]:
        released: list[Batch] = []
        while self._held and self.next is not None and min(self._held) <= self.next:
            batch = self._held.pop(min(self._held))
            seen = min(self.next - batch.seq, len(batch))
            self.duplicates += seen
            if seen < len(batch):
                released.append(batch.part(seen, len(batch)) if seen else batch)
                self.next = batch.end
        return released
