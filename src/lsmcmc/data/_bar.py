"""A bar for downloads that take longer than a second, only on a terminal."""

from typing import Any

from lsmcmc.progress import Progress


class DownloadBar(Progress):
    """Bytes arrived. `total`, `update`, `reset` and `close` are what pooch asks of a progress bar."""

    def __init__(self, label: str):
        super().__init__(0, label=label)  # pooch sets the total when the server has told it, zero if it does not

    def update(self, num_bytes: int) -> None:
        """`num_bytes` more have arrived."""
        self.advance(num_bytes)

    def reset(self) -> None:
        """Count from the start."""
        self.done = 0

    def close(self) -> None:
        """Nothing to do: leaving the `with` block closes the bar, also when the download fails."""

    def _counters(self) -> list[Any]:
        from rich import progress

        return [progress.DownloadColumn(), progress.TransferSpeedColumn()]
