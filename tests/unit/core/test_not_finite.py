"""Metrics that are not finite: which are reported, and how often."""

from __future__ import annotations

import math

from holdfast.core.not_finite import METRICS_MAX, NotFinite, in_words

NAN, INF = math.nan, math.inf


def test_nan_counts_in_any_metric_and_infinity_in_losses() -> None:
    watch = NotFinite(["best/score", None])
    metrics = {
        "loss": INF,
        "Val_Loss": -INF,
        "accuracy": NAN,
        "eta": INF,
        "best": {"score": INF, "other": INF, "deep": {"x": NAN}},
        "fine": 0.5,
        "count": 3,
        "name": "nan",
        "list": [NAN],
    }

    assert in_words(watch.found(metrics)) == (
        "loss=inf, Val_Loss=-inf, accuracy=nan, best/score=inf, best/deep/x=nan"
    )


def test_each_metric_is_news_once_and_only_a_few_are() -> None:
    watch = NotFinite()

    assert watch.news({"loss": 0.1}) == {}
    assert list(watch.news({"loss": NAN})) == ["loss"]
    assert watch.news({"loss": NAN}) == {}
    assert list(watch.news({"loss": INF, "val_loss": INF})) == ["val_loss"]
    assert len(watch.news({f"m{i}": NAN for i in range(10)})) == METRICS_MAX - 2
    assert watch.news({"another": NAN}) == {}
