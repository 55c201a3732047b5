"""Workflows over HTTP: `path("workflows/", include("pikku_storage.workflows.urls"))`.

Only workflows with `@workflow(http=…)` have addresses here.
"""

from django.urls import path

from pikku_storage.workflows.http import views

app_name = "pikku_workflows"

urlpatterns = [
    path("<str:name>/start", views.start, name="start"),
    path("<str:name>/run", views.run, name="run"),
    path("<str:name>/approve/<str:run_id>", views.approve, name="approve"),
    path("<str:name>/status/<str:run_id>", views.status, name="status"),
    path("<str:name>/status/<str:run_id>/stream", views.stream, {"full": False}, name="stream"),
    path("<str:name>/status/<str:run_id>/stream/full", views.stream, {"full": True}, name="stream-full"),
]
