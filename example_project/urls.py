"""The admin, where the front page leads, and the workflows that are served over HTTP, and the rooms."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("admin/", admin.site.urls),
    path("workflows/", include("pikku_storage.workflows.urls")),
    path("live/", include("example_project.live.urls")),
    path("", RedirectView.as_view(pattern_name="admin:index")),
]
