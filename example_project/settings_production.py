"""Settings for production: secrets must be given, and nothing travels unencrypted.

Needs SECRET_KEY, PIKKU_SECRET_KEK, ALLOWED_HOSTS, DATABASE_URL and CELERY_BROKER_URL, and stops with the name of the
one that is missing.
"""

from example_project.databases import databases_from_env
from example_project.settings import *
from example_project.settings import BASE_DIR, PIKKU_STORAGE, env

DEBUG = False
SECRET_KEY = env.str("SECRET_KEY")
ALLOWED_HOSTS = env.list("ALLOWED_HOSTS")
CSRF_TRUSTED_ORIGINS = [f"https://{host}" for host in ALLOWED_HOSTS]

DATABASES = databases_from_env(env, base_dir=BASE_DIR)
CELERY_BROKER_URL = env.str("CELERY_BROKER_URL")
PIKKU_STORAGE = {
    **{key: PIKKU_STORAGE[key] for key in ("DATABASE", "SECRET_KEK_VERSION", "SECRET_PREVIOUS_KEKS")},
    "SECRET_KEK": env.str("PIKKU_SECRET_KEK"),
}

# The application stands behind a proxy that ends TLS and sets this header itself.
SECURE_PROXY_SSL_HEADER = ("HTTP_X_FORWARDED_PROTO", "https")
SECURE_SSL_REDIRECT = True
SECURE_HSTS_SECONDS = env.int("SECURE_HSTS_SECONDS", 365 * 24 * 3600)
SECURE_HSTS_INCLUDE_SUBDOMAINS = True
SECURE_HSTS_PRELOAD = True
SECURE_REFERRER_POLICY = "same-origin"
SESSION_COOKIE_SECURE = True
CSRF_COOKIE_SECURE = True
X_FRAME_OPTIONS = "DENY"

LOGGING = {
    "version": 1,
    "disable_existing_loggers": False,
    "formatters": {"line": {"format": "%(asctime)s %(levelname)s %(name)s %(message)s"}},
    "handlers": {"console": {"class": "logging.StreamHandler", "formatter": "line"}},
    "root": {"handlers": ["console"], "level": "INFO"},
}
