"""A matplotlib figure without pyplot: no display, no global state."""

import io
from pathlib import Path

from matplotlib.figure import Figure

from t5x_lite.pictures.places import check_place, write_whole


class Picture(Figure):
    """A figure that a notebook shows, whether pyplot was imported or not."""

    def png(self, dpi: float = 120) -> bytes:
        """The picture as the content of a PNG file."""
        drawn = io.BytesIO()
        self.savefig(drawn, dpi=dpi, format="png")
        return drawn.getvalue()

    def save(self, path: str | Path, dpi: float = 120) -> None:
        """Writes a PNG file; `InputError` for a name that is none's, or a place that is none."""
        path = Path(path).expanduser()
        check_place(path, "path")
        write_whole(path, self.png(dpi))

    def _repr_png_(self) -> bytes:
        return self.png(dpi=100)
