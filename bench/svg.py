"""Small charts as SVG text: lines and dots over linear or logarithmic axes. No script, no styles from elsewhere."""

import math
from collections.abc import Sequence
from html import escape
from typing import Literal

from msgspec import Struct

_WIDTH, _HEIGHT = 560, 280
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 14, 12, 44
_PLOT_WIDTH, _PLOT_HEIGHT = _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
_TICKS = 5
# A line with more points gets no dot to hover over at each of them.
_MAX_HOVER_POINTS = 260

COLOURS = 6


class Series(Struct, frozen=True):
    """Points of one kind, in order of x. ``colour`` is below ``COLOURS``; the page's style gives it a shade."""

    name: str
    points: Sequence[tuple[float, float]]
    colour: int = 0
    mark: Literal["line", "dots"] = "line"
    dashed: bool = False


class Axis(Struct, frozen=True):
    """One axis: the values it covers and where they go."""

    low: float
    high: float
    log: bool = False

    def position(self, value: float) -> float:
        """Return where a value lies, from 0 to 1."""
        if self.log:
            value = max(value, self.low)
            return (math.log10(value) - math.log10(self.low)) / (math.log10(self.high) - math.log10(self.low))
        return (value - self.low) / (self.high - self.low)

    def ticks(self) -> list[float]:
        """Return round values to label."""
        if self.log:
            first, last = math.floor(math.log10(self.low)), math.ceil(math.log10(self.high))
            few = last - first <= 2
            values = [10.0**power * step for power in range(first, last + 1) for step in ((1, 2, 5) if few else (1,))]
        else:
            step = nice_step((self.high - self.low) / _TICKS)
            values = [step * number for number in range(math.ceil(self.low / step), math.floor(self.high / step) + 1)]
        return [value for value in values if self.low <= value * (1 + 1e-9) and value <= self.high * (1 + 1e-9)]


def nice_step(rough: float) -> float:
    """Return the round number (1, 2 or 5 times a power of ten) at or above ``rough``."""
    power = math.pow(10, math.floor(math.log10(rough)))
    return next(step * power for step in (1.0, 2.0, 5.0, 10.0) if step * power >= rough * (1 - 1e-9))


def make_axis(values: Sequence[float], *, log: bool, from_zero: bool) -> Axis:
    """Fit an axis around values; a logarithmic one covers the positive ones."""
    if log:
        positive = [value for value in values if value > 0] or [1.0]
        low, high = min(positive), max(positive)
        return Axis(low, high, log=True) if high > low else Axis(low / 2, high * 2, log=True)
    low, high = min([0.0, *values] if from_zero else values), max(values)
    if high <= low:
        high = low + 1.0
    return Axis(low, high + (high - low) * 0.04 if from_zero else high)


def draw_chart(
    series: Sequence[Series], *, title: str, x_label: str, y_label: str, log_x: bool = False, log_y: bool = False
) -> str:
    """Draw one chart with its legend; empty text when there are no points."""
    shown = [each for each in series if each.points]
    if not shown:
        return ""
    x_axis = make_axis([x for each in shown for x, _ in each.points], log=log_x, from_zero=False)
    y_axis = make_axis([y for each in shown for _, y in each.points], log=log_y, from_zero=True)
    body = "".join(
        [
            _draw_grid(x_axis, y_axis),
            *(_draw_series(each, x_axis, y_axis) for each in shown),
            _text(_LEFT + _PLOT_WIDTH / 2, _HEIGHT - 8, x_label, "middle"),
        ]
    )
    legend = _draw_legend(shown) if len(shown) > 1 else ""
    return (
        f'<figure><figcaption><b>{escape(title)}</b> <span class="unit">{escape(y_label)}</span></figcaption>{legend}'
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{escape(title)}">{body}</svg></figure>'
    )


def _place(x_axis: Axis, y_axis: Axis, x: float, y: float) -> tuple[float, float]:
    return _LEFT + x_axis.position(x) * _PLOT_WIDTH, _TOP + (1 - y_axis.position(y)) * _PLOT_HEIGHT


def _draw_grid(x_axis: Axis, y_axis: Axis) -> str:
    parts = []
    for value in y_axis.ticks():
        _, y = _place(x_axis, y_axis, x_axis.low, value)
        parts.append(f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(_text(_LEFT - 7, y + 4, format_tick(value), "end"))
    for value in x_axis.ticks():
        x, _ = _place(x_axis, y_axis, value, y_axis.low)
        parts.append(_text(x, _HEIGHT - _BOTTOM + 17, format_tick(value), "middle"))
    bottom = _HEIGHT - _BOTTOM
    parts.append(f'<line class="axis" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{bottom}" y2="{bottom}"/>')
    return "".join(parts)


def _draw_series(series: Series, x_axis: Axis, y_axis: Axis) -> str:
    places = [(*_place(x_axis, y_axis, x, y), x, y) for x, y in series.points]
    parts = []
    if series.mark == "line":
        path = " ".join(f"{px:.1f},{py:.1f}" for px, py, _, _ in places)
        dash = ' stroke-dasharray="5 4"' if series.dashed else ""
        parts.append(f'<polyline class="line c{series.colour}" points="{path}"{dash}/>')
    if series.mark == "dots" or len(places) <= _MAX_HOVER_POINTS:
        style = "dot" if series.mark == "dots" or len(places) <= 2 * _TICKS else "hover"
        for px, py, x, y in places:
            hint = escape(f"{series.name}: {format_tick(x)}, {format_tick(y)}")
            where = f'cx="{px:.1f}" cy="{py:.1f}" r="3"'
            parts.append(f'<circle class="{style} c{series.colour}" {where}><title>{hint}</title></circle>')
    return "".join(parts)


def _draw_legend(series: Sequence[Series]) -> str:
    entries = []
    for each in series:
        dash = ' stroke-dasharray="5 4"' if each.dashed else ""
        sample = (
            f'<svg width="22" height="8"><line class="line c{each.colour}" x1="1" x2="21" y1="4" y2="4"{dash}/></svg>'
        )
        entries.append(f"<span>{sample} {escape(each.name)}</span>")
    return f'<div class="legend">{"".join(entries)}</div>'


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def format_tick(value: float) -> str:
    """Write a number for an axis or a hint: short, without needless zeros."""
    if abs(value) >= 10_000:
        return f"{value / 1000:,.4g}k"
    return f"{value:.4g}"
