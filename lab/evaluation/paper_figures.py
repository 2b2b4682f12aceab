"""Bars and lines as SVG that reads on light and dark grounds."""

from xml.sax.saxutils import escape

COLOURS = ["#2f6fb5", "#3fa06b", "#c8742c", "#9a5fb0", "#b5485d", "#7d7f32"]
GREY = "#808890"


def _svg(width, height, body):
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
            f'height="{height}" font-family="sans-serif" font-size="12" fill="{GREY}">\n' + "\n".join(body) +
            "\n</svg>\n")


def _head(title, names, width):
    """Title and legend, which takes as many lines as it needs, and where what is below them may begin."""
    body = [f'<text x="10" y="18" font-size="14">{escape(title)}</text>']
    x, y = 10, 38
    for index, name in enumerate(names):
        taken = 30 + 7 * len(name)
        if x > 10 and x + taken > width:
            x, y = 10, y + 18
        body.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{COLOURS[index % len(COLOURS)]}"/>')
        body.append(f'<text x="{x + 15}" y="{y}">{escape(name)}</text>')
        x += taken
    return body, y + 10


def _nice(largest):
    step = 10 ** len(str(int(largest))) / 10 or 1
    for factor in (0.1, 0.2, 0.5, 1, 2, 5):
        if largest / (factor * step) <= 6:
            return factor * step
    return step * 10


def bars(title, names, rows, band=None):
    """`rows`: (label, a value for each name or None). `band`: (low, high, text) drawn behind the bars."""
    left, width, bar = 250, 820, 9
    group = bar * len(names) + 9
    values = [value for _, row in rows for value in row if value is not None]
    if not values:
        return _svg(width, 40, [f'<text x="10" y="20">{escape(title)}: no results</text>'])
    tick = _nice(max(values + ([band[1]] if band else [])))
    high = tick * (int(max(values + ([band[1]] if band else [])) / tick) + 1)
    body, top = _head(title, names, width)
    bottom = top + 12 + group * len(rows)

    def across(value):
        return left + (width - left - 60) * value / high

    if band:
        least, most, text = band
        body.append(f'<rect x="{across(least):.1f}" y="{top}" width="{across(most) - across(least):.1f}" '
                    f'height="{bottom - top}" fill="{GREY}" opacity="0.15"><title>{escape(text)}</title></rect>')
        body.append(f'<text x="{across(least):.1f}" y="{bottom + 32}">{escape(text)}</text>')
    for index in range(int(high / tick + 0.5) + 1):
        x = across(index * tick)
        body.append(f'<path d="M{x:.1f} {top}V{bottom}" stroke="{GREY}" stroke-width="0.5" opacity="0.5"/>')
        body.append(f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{index * tick:g}</text>')
    for place, (label, row) in enumerate(rows):
        y = top + 6 + place * group
        body.append(f'<text x="{left - 8}" y="{y + group / 2}" text-anchor="end">{escape(label)}</text>')
        for index, value in enumerate(row):
            if value is None:
                continue
            body.append(f'<rect x="{left}" y="{y + index * bar}" width="{across(value) - left:.1f}" height="{bar - 1}" '
                        f'fill="{COLOURS[index % len(COLOURS)]}"><title>{escape(label)}: {escape(names[index])} '
                        f'{value:.2f}</title></rect>')
    return _svg(width, bottom + 42, body)


def lines(title, series):
    """`series`: (name, [(label, value or None)]); labels are evenly spaced."""
    width, left, right = 820, 60, 32  # half of the longest label stands right of its point
    body, top = _head(title, [name for name, _ in series], width)
    bottom = top + 212
    labels = [label for label, _ in series[0][1]] if series else []
    values = [value for _, points in series for _, value in points if value is not None]
    if not values:
        return _svg(width, 40, [f'<text x="10" y="20">{escape(title)}: no results</text>'])
    tick = _nice(max(values))
    high = tick * (int(max(values) / tick) + 1)

    def at(index, value):
        x = left + (width - left - right) * index / max(1, len(labels) - 1)
        return x, bottom - (bottom - top - 12) * value / high

    for index in range(int(high / tick + 0.5) + 1):
        _, y = at(0, index * tick)
        body.append(f'<path d="M{left} {y:.1f}H{width - right}" stroke="{GREY}" stroke-width="0.5" opacity="0.5"/>')
        body.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{index * tick:g}</text>')
    for index, label in enumerate(labels):
        if len(labels) <= 12 or index % (len(labels) // 10) == 0:
            body.append(f'<text x="{at(index, 0)[0]:.1f}" y="{bottom + 18}" text-anchor="middle">{escape(label)}</text>')
    for place, (name, points) in enumerate(series):
        colour = COLOURS[place % len(COLOURS)]
        drawn = [at(index, value) for index, (_, value) in enumerate(points) if value is not None]
        path = " ".join(f"{'L' if index else 'M'}{x:.1f} {y:.1f}" for index, (x, y) in enumerate(drawn))
        body.append(f'<path d="{path}" fill="none" stroke="{colour}" stroke-width="1.5"><title>{escape(name)}</title></path>')
        if len(labels) <= 12:
            body += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in drawn]
    return _svg(width, bottom + 40, body)
