from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from datetime import datetime

from naive.parsing import Document, documents, window_start

from pipeline.generators import Event

TWEET = {"id": str, "user": str, "text": str, "likes": int, "replies": int, "at": datetime}
SHAPES = {"tweets": TWEET}


def popular(events: Iterable[Event]) -> dict[str, Document]:
    tweets = documents(events, "tweets", TWEET)
    return {tweet["id"]: tweet for tweet in tweets if tweet["likes"] > 10 or tweet["replies"] > 10}


def hashtags_per_minute(events: Iterable[Event]) -> dict[tuple[str, str], int]:
    ids: dict[tuple[str, str], set[str]] = defaultdict(set)
    for tweet in documents(events, "tweets", TWEET):
        for hashtag in re.findall(r"#(\w+)", tweet["text"].lower()):
            ids[hashtag, window_start(tweet["at"], 60)].add(tweet["id"])
    return {key: len(found) for key, found in ids.items()}
