from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime

from naive.parsing import documents, window_start

from pipeline.generators import Event

LIKE = {"post": str, "user": str, "at": datetime}
POST = {**LIKE, "text": str}
COMMENT = {**POST, "comment": str}
SHAPES = {"posts": POST, "likes": LIKE, "comments": COMMENT}

Total = tuple[str | None, str | None, int, int]


def post_totals(events: list[Event]) -> dict[str, Total]:
    """Per post: author, text, likes, comments."""
    posts = {post["post"]: post for post in documents(events, "posts", POST)}
    likes = {(like["post"], like["user"]) for like in documents(events, "likes", LIKE)}
    comments = {(comment["post"], comment["comment"]) for comment in documents(events, "comments", COMMENT)}
    likes_of, comments_of = Counter(post for post, _ in likes), Counter(post for post, _ in comments)
    return {
        post: (
            posts[post]["user"] if post in posts else None,
            posts[post]["text"] if post in posts else None,
            likes_of[post],
            comments_of[post],
        )
        for post in posts.keys() | likes_of.keys() | comments_of.keys()
    }


def trending(events: Iterable[Event], top: int) -> dict[tuple[str, int], tuple[str, int]]:
    """Per window of five minutes and rank: post and score."""
    events = list(events)
    reactions = {
        (window_start(like["at"], 300), like["post"], "like", like["user"], 1)
        for like in documents(events, "likes", LIKE)
    } | {
        (window_start(comment["at"], 300), comment["post"], "comment", comment["comment"], 2)
        for comment in documents(events, "comments", COMMENT)
    }
    scores: dict[str, Counter[str]] = defaultdict(Counter)
    for window, post, _, _, weight in reactions:
        scores[window][post] += weight
    ranks = {}
    for window, score_of in scores.items():
        best = sorted(score_of, key=lambda post: (-score_of[post], post))[:top]
        ranks.update({(window, rank): (post, score_of[post]) for rank, post in enumerate(best, 1)})
    return ranks
