from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from naive.parsing import documents

from pipeline.generators import Event

POSITION = {"user": str, "show": str, "genre": str, "position_s": int, "at": datetime}
SHAPES = {"show-positions": POSITION}


def resume_points(events: Iterable[Event]) -> dict[tuple[str, str], tuple[datetime, int]]:
    points: dict[tuple[str, str], tuple[datetime, int]] = {}
    for seen in documents(events, "show-positions", POSITION):
        key, point = (seen["user"], seen["show"]), (seen["at"], seen["position_s"])
        points[key] = max(point, points.get(key, point))
    return points


def recommendations(events: Iterable[Event], top: int) -> dict[tuple[str, str], str]:
    """Per user and genre of theirs: the genre's shows by number of viewers, without those the user has seen."""
    views = {(seen["genre"], seen["show"], seen["user"]) for seen in documents(events, "show-positions", POSITION)}
    recommended = {}
    for user, genre in {(user, genre) for genre, _, user in views}:
        shows = {show for of, show, _ in views if of == genre}
        viewers = {show: len({who for _, what, who in views if what == show}) for show in shows}
        unseen = [show for show in shows if (genre, show, user) not in views]
        recommended[user, genre] = ",".join(sorted(unseen, key=lambda show: (-viewers[show], show))[:top])
    return recommended


def positions(events: Iterable[Event]) -> set[tuple[str, str, str, int, datetime]]:
    seen = documents(events, "show-positions", POSITION)
    return {(one["user"], one["show"], one["genre"], one["position_s"], one["at"]) for one in seen}
