"""Counting on the wire, against a server that is asked by a client that knows what it sends."""

import psycopg
import pytest

from benchmarks.statements import Count, Counter, PostgresProxy, is_control


@pytest.mark.parametrize(
    ("text", "expected"),
    [("BEGIN", True), (" commit", True), ("ROLLBACK TO a", True), ("SELECT 1", False), ("WITH a AS (…) SELECT", False)],
)
def test_what_only_begins_or_ends_a_transaction_is_no_statement(text: str, expected: bool) -> None:
    assert is_control(text) is expected


def test_the_cost_of_a_step_is_the_rise_from_a_short_run_to_a_long_one() -> None:
    short, long = Count(statements=25, transactions=24), Count(statements=205, transactions=114)
    assert short.rise_to(long, 90) == Count(statements=2.0, transactions=1.0)


def test_statements_transactions_and_round_trips_are_counted_on_the_wire(postgres_url: str) -> None:
    counter = Counter()
    proxy = PostgresProxy(postgres_url, counter)
    with psycopg.connect(proxy.url, autocommit=True) as connection:
        before = counter.read()
        for number in range(10):
            # psycopg prepares it at the sixth time, which is a round trip of its own but no statement.
            connection.execute("SELECT %s::int", [number])
        with connection.transaction():
            connection.execute("SELECT 1")
            connection.execute("SELECT 2")
        rise = before.rise_to(counter.read())
    proxy.close()
    assert rise == Count(statements=12, transactions=11, round_trips=15)
