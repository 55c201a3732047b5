"""A process of its own that imports in small batches: `python -m tests.conformance.importing_process FILE`.

It says "batch" after each batch, and waits until it is killed.
"""

import sys

import django


def main(path: str) -> None:
    """Import the file's runs."""
    django.setup()
    from pikku_storage.importing import importer
    from pikku_storage.importing.sources import open_source
    from pikku_storage.importing.tables import tables_of

    importer.BATCH_ROWS = 5

    def say(rows: int) -> None:
        sys.stdout.write("batch\n")
        sys.stdout.flush()

    with open_source(path) as source:
        for table in tables_of(["workflows"]):
            importer.Importer(source, advanced=say).run(table)


if __name__ == "__main__":
    main(sys.argv[1])
