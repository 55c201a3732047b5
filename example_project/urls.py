"""The admin, where the front page leads, the workflows that are served over HTTP, and the support agent."""

from django.contrib import admin
from django.urls import include, path
from django.views.generic import RedirectView

urlpatterns = [
    path("admin/", admin.site.urls),
    path("workflows/", include("pikku_storage.workflows.urls")),
    path("support/", include("example_project.support.urls")),
    path("", RedirectView.as_view(pattern_name="admin:index")),
]
