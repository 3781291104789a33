"""The flame graph: widths add up, frames of one function are one box, odd names survive."""

from __future__ import annotations

from xml.etree import ElementTree

from bench.flame import boxes, depth_of, render, tree_of

STACKS = [
    "main (a.py:1);read (storage/log.py:10);pread (storage/disk.py:5) 6",
    "main (a.py:2);read (storage/log.py:11) 2",
    "main (a.py:2);<lambda> (broker/x.py:3) 2",
    "thread (b.py:1) 10",
    "",
]


def test_samples_add_up() -> None:
    root = tree_of(STACKS)
    assert root.samples == 20
    assert root.children["main"].samples == 10
    assert root.children["main"].children["read"].samples == 8
    assert depth_of(root) == 4


def test_a_start_leaves_other_stacks_out() -> None:
    root = tree_of(STACKS, start="read")
    assert root.samples == 8
    assert list(root.children) == ["read"]


def test_children_lie_within_their_parents() -> None:
    placed = {node.name: (x, width, level) for node, x, width, level in boxes(tree_of(STACKS), 0, 0, 1.0)}
    assert placed["all"] == (0, 20, 0)
    for child, parent in (("read", "main"), ("pread", "read"), ("<lambda>", "main")):
        x, width, level = placed[child]
        outer_x, outer_width, outer_level = placed[parent]
        assert outer_x <= x
        assert x + width <= outer_x + outer_width
        assert level == outer_level + 1


def test_the_picture_is_well_formed() -> None:
    picture = ElementTree.fromstring(render(tree_of(STACKS), "a <title> & more"))
    titles = [element.text for element in picture.iter("{http://www.w3.org/2000/svg}title")]
    assert "<lambda> (broker/x.py) 10.0 %" in titles
