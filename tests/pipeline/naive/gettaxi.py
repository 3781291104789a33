from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from naive.parsing import documents, window_start

from pipeline.generators import Event

POSITION = {"id": str, "lat": float, "lon": float, "at": datetime}
SHAPES = {"taxi-positions": POSITION, "user-positions": POSITION}


def surge_prices(events: list[Event]) -> dict[tuple[str, str], tuple[int, int, int]]:
    """Per region and minute: users, taxis, price in per cent."""
    users, taxis = (seen(events, topic) for topic in ("user-positions", "taxi-positions"))
    prices = {}
    for place in users.keys() | taxis.keys():
        waiting, free = len(users.get(place, ())), len(taxis.get(place, ()))
        if waiting == 0:
            price = 100
        elif free == 0:
            price = 300
        else:
            price = min(300, max(100, waiting * 100 // free))
        prices[place] = (waiting, free, price)
    return prices


def seen(events: Iterable[Event], topic: str) -> dict[tuple[str, str], set[str]]:
    ids: dict[tuple[str, str], set[str]] = defaultdict(set)
    for position in documents(events, topic, POSITION):
        region = f"{math.floor(position['lat'] * 100)}:{math.floor(position['lon'] * 100)}"
        ids[region, window_start(position["at"], 60)].add(position["id"])
    return ids
