"""A process that delivers a webhook: `python -m tests.races.deliverer ID`."""

import sys

import django


def main() -> None:
    """Make the attempt that is due."""
    django.setup()
    from django.conf import settings

    from pikku_storage.webhooks.service import WebhookService

    settings.PIKKU_STORAGE = {**settings.PIKKU_STORAGE, "WEBHOOK_ALLOWED_HOSTS": ["127.0.0.0/8"]}
    WebhookService(worker="deliverer").deliver(sys.argv[1])


if __name__ == "__main__":
    main()
