from __future__ import annotations

from datetime import datetime, timedelta

from naive.parsing import documents

from pipeline.generators import Event

TRANSACTION = {"id": str, "account": str, "amount_cents": int, "at": datetime}
THRESHOLD = {"account": str, "threshold_cents": int, "at": datetime}
SHAPES = {"transactions": TRANSACTION, "thresholds": THRESHOLD}

Alert = tuple[str, int, datetime, int, datetime]


def alerts(events: list[Event], watermark: timedelta) -> dict[str, Alert]:
    """Per transaction: account, amount, time, the threshold and when it was set.

    Those which the watermark has not passed are not decided yet: an earlier threshold could still come.
    """
    transactions = documents(events, "transactions", TRANSACTION)
    thresholds = documents(events, "thresholds", THRESHOLD)
    decided_until = max(one["at"] for one in transactions + thresholds) - watermark
    found = {}
    for transaction in transactions:
        account, amount, at = transaction["account"], transaction["amount_cents"], transaction["at"]
        earlier = [one for one in thresholds if one["account"] == account and one["at"] <= at]
        if at >= decided_until or not earlier:
            continue
        latest = max(earlier, key=lambda one: (one["at"], one["threshold_cents"]))
        if amount > latest["threshold_cents"]:
            found[transaction["id"]] = (account, amount, at, latest["threshold_cents"], latest["at"])
    return found
