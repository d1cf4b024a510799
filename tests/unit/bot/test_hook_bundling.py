"""Storms of deliveries: what is posted when, and which of it together. Nothing is left out, nothing twice."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from hypothesis import given
from hypothesis import strategies as st

from bot.hooks.grouping import WINDOW_SECONDS, Bundle, WaitingDelivery, bundle_due

NOW = 1_000_000.0


def replay(times: Sequence[float], subjects: Sequence[str], known: Collection[str] = ()) -> list[tuple[float, Bundle]]:
    """Let deliveries come at these times; return each post and when it was made."""
    posts = list[tuple[float, Bundle]]()
    threads, arrived = {*known}, list[WaitingDelivery]()
    coming = [
        WaitingDelivery(number, subject, at) for number, (at, subject) in enumerate(zip(times, subjects, strict=True))
    ]
    look = None
    while coming or look is not None:
        now = min([each.received for each in coming[:1]] + ([look] if look is not None else []))
        while coming and coming[0].received <= now:
            arrived.append(coming.pop(0))
        latest = [at for at, _ in posts]
        due, look = bundle_due(arrived, threads, latest, now, gather_seconds=2, per_minute=5)
        for bundle in due:
            posts.append((now, bundle))
            threads |= {*bundle.subjects}
        gone = {id for bundle in due for id in bundle.deliveries}
        arrived = [each for each in arrived if each.id not in gone]
    return posts


def test_one_delivery_is_posted_after_a_moment() -> None:
    assert replay([NOW], ["a"]) == [(NOW + 2, Bundle((0,), ("a",)))]


def test_a_few_subjects_have_a_thread_each_and_go_on_there() -> None:
    posts = replay([NOW, NOW + 1, NOW + 1, NOW + 100], ["a", "b", "a", "a"])
    assert [bundle for _at, bundle in posts] == [
        Bundle((0, 2), ("a",)),
        Bundle((1,), ("b",)),
        Bundle((3,), ("a",), "a"),
    ]


def test_fifty_alerts_in_a_burst_are_one_post_with_fifty() -> None:
    [(_at, bundle)] = replay([NOW + number / 50 for number in range(50)], [f"s{number}" for number in range(50)])
    assert len(bundle.deliveries) == 50


def test_fifty_alerts_over_a_minute_are_one_post_with_fifty() -> None:
    [(at, bundle)] = replay([NOW + number * 1.2 for number in range(50)], [f"s{number}" for number in range(50)])
    assert len(bundle.deliveries) == 50
    assert at <= NOW + WINDOW_SECONDS + 2


def test_a_storm_that_trickles_makes_a_bounded_number_of_posts() -> None:
    """A delivery every three seconds, each of another subject, for ten minutes."""
    posts = replay([NOW + number * 3 for number in range(200)], [f"s{number}" for number in range(200)])
    assert sum(len(bundle.deliveries) for _at, bundle in posts) == 200
    for begin in [at for at, _ in posts]:
        assert sum(begin <= at < begin + WINDOW_SECONDS for at, _ in posts) <= 6


arrivals = st.lists(st.tuples(st.floats(0, 400), st.sampled_from("abcdefghij")), min_size=1, max_size=60)


@given(arrivals, st.sets(st.sampled_from("abc")))
def test_each_delivery_is_posted_once_and_within_two_minutes(arrived: list[tuple[float, str]], known: set[str]) -> None:
    arrived.sort()
    posts = replay([NOW + at for at, _ in arrived], [subject for _, subject in arrived], known)
    times = {id: at for at, bundle in posts for id in bundle.deliveries}
    assert sorted(id for _at, bundle in posts for id in bundle.deliveries) == [*range(len(arrived))]
    assert all(0 <= times[number] - NOW - at <= 2 * WINDOW_SECONDS for number, (at, _) in enumerate(arrived))
