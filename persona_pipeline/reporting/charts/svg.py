"""SVG as strings: every attribute and text is escaped, and no chart carries a style attribute, which a strict CSP blocks."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from persona_pipeline.reporting.text import html_text, xml_text


def element(name: str, attributes: dict[str, object] | None = None, *children: str) -> Markup:
    """Return one element. Attributes that are None are left out; a child that is not ``Markup`` is escaped."""
    known = [(key, value) for key, value in (attributes or {}).items() if value is not None]
    pairs = Markup("").join(Markup(' {}="{}"').format(key, _attribute(value)) for key, value in known)
    safe = (child if isinstance(child, Markup) else escape(html_text(xml_text(child))) for child in children)
    return Markup("<{0}{1}>{2}</{0}>").format(name, pairs, Markup("").join(safe))


def picture(width: float, height: float, title: str, children: Iterable[Markup], *, classes: str = "chart") -> Markup:
    """Return an ``<svg>`` of this view box that a screen reader announces as one image with this title."""
    box = f"0 0 {number(width)} {number(height)}"
    own = {"xmlns": "http://www.w3.org/2000/svg", "class": classes, "viewBox": box, "role": "img", "aria-label": title}
    return element("svg", {**own}, *children)


def path(points: Sequence[tuple[float, float] | None]) -> str:
    """Return path data through the points; None breaks the line, and a lone point becomes a dot of no length."""
    data, pen_down = [], False
    for point in points:
        if point is None:
            pen_down = False
            continue
        data.append(f"{'L' if pen_down else 'M'}{number(point[0])} {number(point[1])}")
        pen_down = True
    return " ".join(data)


def number(value: float) -> str:
    """Return a coordinate with at most two digits after the point."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Plot:
    """The frame of a chart with two axes. Places in it are shares (0-1) of its width from the left and of its height from below."""

    height: float
    left: float = 26.0
    right: float = 12.0
    top: float = 20.0
    bottom: float = 26.0
    width: float = 480.0

    def x(self, share: float) -> float:
        return self.left + (self.width - self.left - self.right) * share

    def y(self, share: float) -> float:
        return self.top + (self.height - self.top - self.bottom) * (1 - share)

    def across(self, share: float, name: str) -> Markup:
        y, end = self.y(share), self.width - self.right
        return element("line", {"class": name, "x1": self.left, "x2": end, "y1": y, "y2": y})

    def grid(self, ticks: Iterable[tuple[float, str]]) -> list[Markup]:
        """Return level lines with what stands beside them; the one at the bottom is the axis."""
        parts = []
        for share, text in ticks:
            y = self.y(share)
            place = {"class": "note", "x": self.left - 8, "y": y, "text-anchor": "end", "dominant-baseline": "central"}
            parts += [self.across(share, "axis" if share == 0 else "grid"), element("text", place, text)]
        return parts

    def below(self, x: float, text: str, anchor: str = "middle") -> Markup:
        return element("text", {"class": "note", "x": x, "y": self.height - 8, "text-anchor": anchor}, text)

    def picture(self, title: str, parts: Iterable[Markup], classes: str = "chart timeline") -> Markup:
        return picture(self.width, self.height, title, parts, classes=classes)


def line_path(points: Sequence[tuple[float, float] | None], style: str = "") -> Markup:
    return element("path", {"class": f"line {style}".strip(), "d": path(points)})


def _attribute(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return number(value) if isinstance(value, int | float) else html_text(xml_text(str(value)))
