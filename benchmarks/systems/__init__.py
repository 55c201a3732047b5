"""The systems that are measured, in the order of the table."""

from __future__ import annotations

from benchmarks.environment import Environment
from benchmarks.systems.base import System
from benchmarks.systems.celery_canvas import CeleryDjango, CeleryRedis
from benchmarks.systems.dbos_direct import DbosDirect
from benchmarks.systems.dbos_queue import DbosQueue
from benchmarks.systems.pikku import PikkuInlinePostgresql, PikkuInlineSqlite, PikkuQueued, PikkuQueuedSteps
from benchmarks.systems.procrastinate_jobs import ProcrastinateJobs
from benchmarks.systems.raw import RawDjangoPostgresql, RawDjangoSqlite, RawPsycopg, RawSqlite3

ALL: tuple[type[System], ...] = (
    RawSqlite3,
    RawDjangoSqlite,
    PikkuInlineSqlite,
    RawPsycopg,
    RawDjangoPostgresql,
    PikkuInlinePostgresql,
    DbosDirect,
    PikkuQueued,
    PikkuQueuedSteps,
    DbosQueue,
    CeleryRedis,
    CeleryDjango,
    ProcrastinateJobs,
)
BY_NAME: dict[str, type[System]] = {system.name: system for system in ALL}


def make(names: list[str], environment: Environment) -> list[System]:
    """The systems of these names, in the order of the table."""
    return [system(environment) for system in ALL if system.name in names]
