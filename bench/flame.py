"""`python -m bench.flame <folded stacks> <out.svg> [title]`: a flame graph of sampled stacks.

Input is what `py-spy record --format raw` writes: a line per stack, frames from the outermost inwards with `;` between
them, and the number of samples. Width is time; a frame stands on its caller. Frames of one function are one box,
whichever of its lines was running. Hovering shows the share.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from xml.sax.saxutils import escape

WIDTH = 1200
ROW = 17
CHARACTER = 6.2  # width of one at 11 px
LEAST = 0.4  # narrower boxes are left out
COLOURS = {"protocol": "#8ecae6", "storage": "#90be6d", "broker": "#f9c74f", "controller": "#f4a261"}
OTHER = "#d0d4da"
_FRAME = re.compile(r"^(?P<name>.*?) \((?P<file>[^:)]*)(:\d+)?\)$")


@dataclass(slots=True)
class Node:
    name: str
    file: str = ""
    samples: int = 0
    children: dict[str, Node] = field(default_factory=dict)

    @property
    def colour(self) -> str:
        return COLOURS.get(self.file.split("/", 1)[0], OTHER)


def tree_of(lines: Iterable[str], *, start: str = "") -> Node:
    """Stacks without a frame of the name `start` are left out, and those with one begin there."""
    root = Node("all")
    for line in lines:
        stack, _, count = line.rpartition(" ")
        if not stack:
            continue
        frames = stack.split(";")
        if start:
            found = [index for index, frame in enumerate(frames) if frame.startswith(start)]
            if not found:
                continue
            frames = frames[found[0] :]
        root.samples += int(count)
        node = root
        for frame in frames:
            match = _FRAME.match(frame)
            name, file = (match["name"], match["file"]) if match else (frame, "")
            node = node.children.setdefault(name, Node(name, file))
            node.samples += int(count)
    return root


def depth_of(node: Node) -> int:
    return 1 + max((depth_of(child) for child in node.children.values()), default=0)


def boxes(node: Node, x: float, level: int, scale: float) -> Iterator[tuple[Node, float, float, int]]:
    """Every node wide enough to be seen, with its x, width and level."""
    width = node.samples * scale
    if width < LEAST:
        return
    yield node, x, width, level
    for child in sorted(node.children.values(), key=lambda child: child.name):
        yield from boxes(child, x, level + 1, scale)
        x += child.samples * scale


def render(root: Node, title: str) -> str:
    levels = depth_of(root)
    height = (levels + 2) * ROW + 26
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" '
        f'viewBox="0 0 {WIDTH} {height}" font-family="sans-serif" font-size="11">',
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>',
        f'<text x="8" y="16" font-size="14" font-weight="bold">{escape(title)}</text>',
    ]
    x = WIDTH - 8 - 95 * (len(COLOURS) + 1)
    for name, colour in [*COLOURS.items(), ("other", OTHER)]:
        parts.append(
            f'<rect x="{x}" y="6" width="12" height="12" fill="{colour}"/><text x="{x + 16}" y="16">{name}</text>'
        )
        x += 95
    for node, left, width, level in boxes(root, 0, 0, WIDTH / max(1, root.samples)):
        y = height - (level + 1) * ROW - 6
        share = 100 * node.samples / root.samples
        label = node.name if len(node.name) * CHARACTER < width else node.name[: max(0, int(width / CHARACTER) - 1)]
        told = escape(f"{node.name} ({node.file}) {share:.1f} %" if node.file else f"{node.name} {share:.1f} %")
        parts.append(
            f'<g><title>{told}</title><rect x="{left:.1f}" y="{y}" width="{max(width - 0.5, 0.3):.1f}" '
            f'height="{ROW - 1}" fill="{node.colour}"/><text x="{left + 2:.1f}" y="{y + 12}">{escape(label)}</text></g>'
        )
    return "\n".join([*parts, "</svg>\n"])


def main(arguments: list[str]) -> None:
    if len(arguments) < 2:
        sys.exit(__doc__)
    source, target, *rest = arguments
    with open(source) as lines:
        root = tree_of(lines, start=rest[1] if len(rest) > 1 else "")
    Path(target).write_text(render(root, rest[0] if rest else source))


if __name__ == "__main__":
    main(sys.argv[1:])
