"""Addresses of the rooms. The socket itself is in `example_project/asgi.py`."""

from django.urls import path

from example_project.live import views

app_name = "live"
urlpatterns = [
    path("", views.room_page, name="lobby"),
    path("channels/", views.own_channels, name="channels"),
    path("rooms/<slug:room>/", views.room_page, name="room"),
    path("rooms/<slug:room>/say/", views.say, name="say"),
]
