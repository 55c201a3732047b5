"""The agent's addresses."""

from django.urls import path

from example_project.support import views

app_name = "support"

urlpatterns = [
    path("threads/", views.threads, name="threads"),
    path("threads/<str:thread_id>/", views.thread, name="thread"),
    path("approvals/", views.approvals, name="approvals"),
    path("approvals/<str:call_id>/", views.approval, name="approval"),
]
