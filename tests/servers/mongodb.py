"""A server for tests that speaks MongoDB's wire protocol.

`secantusdb` is under the GPL, so it runs as a process of its own, from an environment of its own (`make mongodb`), and
nothing of the package depends on it. Three of its answers are corrected here to what mongod answers to the statements
that django-mongodb-backend sends:

1. `$project`, `$addFields` and `$set` with nested plain objects address nested paths instead of setting literals;
2. `$unionWith` without `coll` takes a leading `$documents`, with which django-mongodb-backend 6 counts;
3. a filter that is only `{"$and": […]}` over different keys is flattened, so that its indexes are used.

Two things make it quicker. It remembers fewer replies to writes that a client may send again: it looks through all of
them at each write. And while it carries out one command it remembers which indexes a collection has, which it would
read a dozen times.

It is a stand-in for MongoDB, not a proof of it.

    .venv-mongodb/bin/python tests/servers/mongodb.py --host 127.0.0.1 --port 27117 --storage-path :memory:
"""

# Runs where neither our package nor types of the server are installed.
# mypy: ignore-errors

import sys
import threading
from collections.abc import Mapping

from secantus import aggregate, commands, server, storage, transactions
from secantus.cli import main

STAGES = aggregate._STAGES
THAT_MAKE_NO_INDEX = {"find", "aggregate", "insert", "update", "delete", "findAndModify"}
under_way = threading.local()
"""`indexes`: those of the collections that the command of this thread has asked for."""


def nested_paths(stage):
    """The stage, told `{"a.b": 1}` where it was told `{"a": {"b": 1}}`; operators stay as they are."""

    def flat(spec, prefix=""):
        paths = {}
        for key, value in spec.items():
            if isinstance(value, Mapping) and value and not any(str(name).startswith("$") for name in value):
                paths.update(flat(value, f"{prefix}{key}."))
            else:
                paths[f"{prefix}{key}"] = value
        return paths

    return lambda spec, documents, context: stage(flat(spec) if isinstance(spec, Mapping) else spec, documents, context)


def union_with_documents(stage):
    """The stage, which may also begin with documents of its own."""

    def run(spec, documents, context):
        pipeline = spec.get("pipeline") if isinstance(spec, Mapping) and spec.get("coll") is None else None
        if not (isinstance(pipeline, list) and pipeline and "$documents" in pipeline[0]):
            return stage(spec, documents, context)
        inner = aggregate.PipelineContext(
            storage=context.storage, db_name=context.db_name, coll_name="", collation=context.collation
        )
        return [*documents, *aggregate.apply_pipeline([], pipeline, inner)]

    return run


def without_and(query):
    """`{"$and": [{a: …}, {b: …}]}` as `{a: …, b: …}`, where no key stands twice."""
    while isinstance(query, dict) and list(query) == ["$and"] and isinstance(query["$and"], list):
        merged = {}
        for clause in query["$and"]:
            if not isinstance(clause, dict) or merged.keys() & clause.keys():
                return query
            merged |= clause
        query = merged
    return query


def flattened(dispatch):
    """The server's dispatcher, with flat filters."""

    def run(command, context):
        for kind in ("updates", "deletes"):
            for operation in command.get(kind) or ():
                if isinstance(operation, dict) and "q" in operation:
                    operation["q"] = without_and(operation["q"])
        pipeline = command.get("pipeline")
        if isinstance(pipeline, list) and pipeline and "$match" in pipeline[0]:
            pipeline[0]["$match"] = without_and(pipeline[0]["$match"])
        return dispatch(command, context)

    return run


def remembering(dispatch):
    """The server's dispatcher, with room for what is remembered during a command."""

    def run(command, context):
        under_way.indexes = {} if next(iter(command)) in THAT_MAKE_NO_INDEX else None
        try:
            return dispatch(command, context)
        finally:
            under_way.indexes = None

    return run


def remembered(iter_indexes):
    """The storage's list of the indexes of a collection."""

    def run(self, database, collection):
        known = getattr(under_way, "indexes", None)
        if known is None:
            return iter_indexes(self, database, collection)
        if (database, collection) not in known:
            known[database, collection] = list(iter_indexes(self, database, collection))
        return iter(known[database, collection])

    return run


def forgetting(mark_multikey):
    """The storage's method that changes an index when the first array comes."""

    def run(self, database, collection, document, indexes, marked):
        before = len(marked)
        marked = mark_multikey(self, database, collection, document, indexes, marked)
        if len(marked) != before and getattr(under_way, "indexes", None):
            under_way.indexes.pop((database, collection), None)
        return marked

    return run


for name in ("$project", "$addFields", "$set"):
    STAGES[name] = nested_paths(STAGES[name])
transactions._RETRYABLE_RECORD_MAX = 64
STAGES["$unionWith"] = union_with_documents(STAGES["$unionWith"])
commands.dispatch = server.dispatch = remembering(flattened(commands.dispatch))
storage.Storage._iter_indexes = remembered(storage.Storage._iter_indexes)
storage.Storage._maybe_mark_multikey = forgetting(storage.Storage._maybe_mark_multikey)

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
