"""Settings for development and the demo: everything has a default and nothing must be installed or started.

Each value in capitals that is read from `env` can be set in the environment or in a file `.env` (see `.env.example`).
What differs in production is in `settings_production.py`.
"""

from pathlib import Path

import environ

from example_project import broker, mongodb
from example_project.databases import MONGODB_ENGINE, PIKKU, databases_from_env

BASE_DIR = Path(__file__).resolve().parent.parent
VAR_DIR = BASE_DIR / "var"

env = environ.Env()
environ.Env.read_env(BASE_DIR / ".env")

DEBUG = True
SECRET_KEY = env.str("SECRET_KEY", "insecure-for-development-only")
ALLOWED_HOSTS: list[str] = env.list("ALLOWED_HOSTS", default=["localhost", "127.0.0.1", "[::1]"])

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "pikku_storage.workflows",
    "pikku_storage.secrets",
    "pikku_storage.agents",
    "pikku_storage.access",
    "pikku_storage.audit",
    "pikku_storage.webhooks",
    "pikku_storage.deployments",
    "pikku_storage.channels",
    "pikku_storage.virtual_users",
    "console",
    "example_project.orders",
    "example_project.support",
    "example_project.live",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.locale.LocaleMiddleware",
    "console.middleware.viewer_zone",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "pikku_storage.access.acting.ActingUserMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]

ROOT_URLCONF = "example_project.urls"
WSGI_APPLICATION = "example_project.wsgi.application"
ASGI_APPLICATION = "example_project.asgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "DIRS": [BASE_DIR / "templates"],
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

DATABASES = databases_from_env(env, base_dir=BASE_DIR, default="sqlite:///var/db.sqlite3")
DATABASE_ROUTERS = ["pikku_storage.db.router.PikkuRouter"]
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"
if DATABASES["default"]["ENGINE"] == MONGODB_ENGINE:
    DEFAULT_AUTO_FIELD = mongodb.AUTO_FIELD
    INSTALLED_APPS = [mongodb.APPS.get(app, app) for app in INSTALLED_APPS]
    MIGRATION_MODULES = mongodb.MIGRATIONS
    DATABASE_ROUTERS = [*DATABASE_ROUTERS, "django_mongodb_backend.routers.MongoRouter"]

AUTHENTICATION_BACKENDS = [
    "django.contrib.auth.backends.ModelBackend",
    "pikku_storage.access.backends.ScopeBackend",
]
AUTH_PASSWORD_VALIDATORS = [
    {"NAME": "django.contrib.auth.password_validation.UserAttributeSimilarityValidator"},
    {"NAME": "django.contrib.auth.password_validation.MinimumLengthValidator"},
    {"NAME": "django.contrib.auth.password_validation.CommonPasswordValidator"},
    {"NAME": "django.contrib.auth.password_validation.NumericPasswordValidator"},
]

LANGUAGE_CODE = "en"
LANGUAGES = [("en", "English"), ("de", "Deutsch")]
TIME_ZONE = "UTC"
USE_TZ = True

STATIC_URL = "static/"
STATIC_ROOT = BASE_DIR / "staticfiles"
STATICFILES_DIRS = [BASE_DIR / "example_project" / "static"]

CELERY_BROKER_URL = env.str("CELERY_BROKER_URL", "filesystem://")
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_BEAT_SCHEDULE_FILENAME = str(VAR_DIR / "celerybeat-schedule")
CELERY_TIMEZONE = TIME_ZONE
CELERY_BEAT_SCHEDULE = {
    "pikku-agents": {"task": "pikku.agents.upkeep", "schedule": 60},
    "pikku-webhooks": {"task": "pikku.webhooks.relay", "schedule": 5},
    "pikku-channels": {"task": "pikku.channels.sweep", "schedule": 60},
}
if CELERY_BROKER_URL.startswith("filesystem:"):
    CELERY_BROKER_TRANSPORT = "example_project.broker:Transport"
    CELERY_BROKER_TRANSPORT_OPTIONS = broker.transport_options(VAR_DIR / "broker")

# Shorter than the defaults, so that the demo wakes a sleeping run soon and misses a killed worker within seconds.
PIKKU_STORAGE: dict[str, object] = {
    "DATABASE": PIKKU if PIKKU in DATABASES else "default",
    # To be thrown away: anybody can read it. Production demands one of its own.
    "SECRET_KEK": env.str("PIKKU_SECRET_KEK", "insecure-and-for-development-only"),
    "SECRET_KEK_VERSION": env.int("PIKKU_SECRET_KEK_VERSION", 1),
    "SECRET_PREVIOUS_KEKS": env.json("PIKKU_SECRET_PREVIOUS_KEKS", {}),
    "LEASE": "15s",
    "RELAY_INTERVAL": "1s",
    "STALLED_AFTER": "20s",
}
