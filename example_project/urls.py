"""The admin, where the front page leads, the workflows that are served over HTTP, the support agent and the rooms."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("admin/", admin.site.urls),
    path("workflows/", include("pikku_storage.workflows.urls")),
    path("support/", include("example_project.support.urls")),
    path("live/", include("example_project.live.urls")),
    path("", RedirectView.as_view(pattern_name="admin:index")),
]
