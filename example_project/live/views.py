"""The page of a room, and what a browser asks without a socket."""

from django.contrib.auth.decorators import login_required
from django.http import Http404, HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.http import require_GET, require_POST

from example_project.live.rooms import ROOMS, said, topic_of
from pikku_storage.channels.models import Channel
from pikku_storage.channels.service import EventHubStore
from pikku_storage.exceptions import ForbiddenError


@require_GET
@login_required(login_url="admin:login")
def room_page(request: HttpRequest, room: str = ROOMS[0]) -> HttpResponse:
    """A room."""
    if room not in ROOMS:
        raise Http404(room)
    return render(request, "live/room.html", {"room": room, "rooms": ROOMS, "topic": topic_of(room)})


@require_GET
@login_required(login_url="admin:login")
def own_channels(request: HttpRequest) -> JsonResponse:
    """The open connections of whoever asks, and of nobody else."""
    rows = Channel.objects.for_principals(request.user).order_by("created_at", "channel_id")
    found = rows.values_list("channel_id", "channel_name", "created_at")
    return JsonResponse({"channels": [{"id": key, "name": name, "since": at} for key, name, at in found]})


@require_POST
@login_required(login_url="admin:login")
def say(request: HttpRequest, room: str) -> HttpResponse:
    """Say something in a room without a socket; this may be another process than those that hold the sockets."""
    if room not in ROOMS:
        raise Http404(room)
    try:
        message = said(request.user.get_username(), request.POST.get("text"))
    except ForbiddenError as error:
        return HttpResponse(str(error), status=422)
    EventHubStore().publish(topic_of(room), None, message)
    return HttpResponse(status=204)
