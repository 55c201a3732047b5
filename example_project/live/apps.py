from django.apps import AppConfig


class LiveConfig(AppConfig):
    name = "example_project.live"
    label = "live"
    verbose_name = "Rooms"
