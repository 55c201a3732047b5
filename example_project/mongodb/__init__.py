"""Django's own apps on MongoDB, where a primary key is an ObjectId."""

from django.contrib.admin.apps import AdminConfig
from django.contrib.auth.apps import AuthConfig
from django.contrib.contenttypes.apps import ContentTypesConfig

AUTO_FIELD = "django_mongodb_backend.fields.ObjectIdAutoField"


class MongoAdminConfig(AdminConfig):
    """`django.contrib.admin`."""

    default_auto_field = AUTO_FIELD


class MongoAuthConfig(AuthConfig):
    """`django.contrib.auth`."""

    default_auto_field = AUTO_FIELD


class MongoContentTypesConfig(ContentTypesConfig):
    """`django.contrib.contenttypes`."""

    default_auto_field = AUTO_FIELD


APPS = {
    "django.contrib.admin": "example_project.mongodb.MongoAdminConfig",
    "django.contrib.auth": "example_project.mongodb.MongoAuthConfig",
    "django.contrib.contenttypes": "example_project.mongodb.MongoContentTypesConfig",
}
"""What stands in INSTALLED_APPS for them."""
MIGRATIONS = {label: f"example_project.mongodb.migrations.{label}" for label in ("admin", "auth", "contenttypes")}
"""Their migrations, made by `manage.py makemigrations` on MongoDB."""
