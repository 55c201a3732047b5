"""`path("", include("pikku_storage.deployments.urls"))` lets other services call the functions of this one.

Letters of the fixed part count as both cases, as they do for the TypeScript packages.
"""

from __future__ import annotations

from django.urls import re_path

from pikku_storage.deployments.views import call_function

app_name = "pikku_deployments"
urlpatterns = [re_path(r"^(?i:remote/rpc)/(?P<name>.+)\Z", call_function, name="call")]
