"""MyBank: an alert for each transaction above the threshold that its customer had set by then.

Times are event times. What counts for a transaction is the latest threshold of its account set at or before it: none
set, no alert, and a threshold set later changes nothing for it, in whatever order the two arrive. So a transaction
waits until the watermark has passed its time, when no earlier threshold can come any more; then it is decided, once.
Both topics share one watermark, or alerts would wait for the next customer who sets a threshold. Every threshold is
kept (they are few), transactions only until they are decided. Alerts are keyed by transaction.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pipeline.errors import BadSetting
from pipeline.job import MAX_OFFSETS, Context, Job, Output, Topic, TopicSink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

TRANSACTION = "id STRING NOT NULL, account STRING NOT NULL, amount_cents BIGINT NOT NULL, at TIMESTAMP NOT NULL"
THRESHOLD = "account STRING NOT NULL, threshold_cents BIGINT NOT NULL, at TIMESTAMP NOT NULL"
ALERT = f"{TRANSACTION}, threshold_cents BIGINT NOT NULL, set_at TIMESTAMP NOT NULL"


def build(context: Context) -> list[Output]:
    if context[MAX_OFFSETS]:
        # The limit is per topic: the small one would run ahead, and the shared watermark past the transactions.
        raise BadSetting("mybank reads both topics in step, so it takes no max_offsets_per_trigger")
    transactions = context.read("transactions").selectExpr("value.*", "CAST(NULL AS BIGINT) AS threshold_cents")
    thresholds = context.read("thresholds").selectExpr(
        "CAST(NULL AS STRING) AS id", "value.account", "CAST(NULL AS BIGINT) AS amount_cents", "value.at",
        "value.threshold_cents",
    )  # fmt: skip
    both = context.watermark(transactions.unionByName(thresholds), "at")
    fields = ("id", "account", "amount_cents", "at", "threshold_cents", "set_at")
    return [Output("alerts", alerts(both), TopicSink("alerts", key="id", value=fields))]


def alerts(both: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    # A filter on `id` alone would be pushed below the watermark, which would then see one kind of event only; one that
    # mentions the event time stays above it.
    transactions = both.where("CASE WHEN id IS NOT NULL THEN at END IS NOT NULL").drop("threshold_cents")
    thresholds = both.where("CASE WHEN id IS NULL THEN at END IS NOT NULL").selectExpr(
        "account AS of_account", "threshold_cents", "at AS set_at"
    )
    return (
        transactions.join(thresholds, F.expr("account = of_account AND set_at <= at"))
        .groupBy("id", "account", "amount_cents", "at")
        .agg(F.max(F.struct("set_at", "threshold_cents")).alias("latest"))
        .select("id", "account", "amount_cents", "at", "latest.threshold_cents", "latest.set_at")
        .where("amount_cents > threshold_cents")
    )


JOB = Job(
    name="mybank",
    build=build,
    reads=[
        Topic("transactions", TRANSACTION, "what moves on accounts, keyed by account"),
        Topic("thresholds", THRESHOLD, "from which amount on a customer wants an alert, keyed by account"),
    ],
    writes=[Topic("alerts", ALERT, "transactions above their threshold, keyed by transaction")],
)
