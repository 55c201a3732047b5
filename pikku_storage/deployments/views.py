"""What other services call: `POST /remote/rpc/<function>` (contract services.md §12, crypto.md §5)."""

from __future__ import annotations

import logging
from inspect import isawaitable, iscoroutinefunction
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.auth.decorators import login_not_required
from django.db import connections, transaction
from django.http import HttpRequest, JsonResponse
from django.http.response import HttpResponseBase
from django.views.decorators.csrf import csrf_exempt

from pikku_storage.conf import settings
from pikku_storage.crypto import remote
from pikku_storage.crypto.hidden import HiddenText
from pikku_storage.deployments.serving import remote_function
from pikku_storage.deployments.sessions import called_with
from pikku_storage.exceptions import UnauthorizedError
from pikku_storage.json import Json, to_json, to_json_object
from pikku_storage.workflows.definitions import FunctionDefinition
from pikku_storage.workflows.http.bodies import body_of
from pikku_storage.workflows.http.errors import ANSWERED, MethodNotAllowedError, error_response

logger = logging.getLogger(__name__)


def _marked(view: Any) -> Any:
    """Services have no cookies, so no other site can make use of theirs. And what is one transaction is decided by the
    function."""
    for alias in connections:
        view = transaction.non_atomic_requests(using=alias)(view)
    return login_not_required(csrf_exempt(view))


@_marked
async def call_function(request: HttpRequest, name: str) -> HttpResponseBase:
    """`{data?}` → the function's result. Who calls is settled before anything else is looked at."""
    try:
        if request.method != "POST":
            raise MethodNotAllowedError(request.method, "POST")
        session = _session_of(request, name)
        definition = remote_function(name)
        given = body_of(request, keys=("data",)).get("data")
        data = {} if given is None else to_json_object(given, root="$data")
        definition.check(data)
        result = to_json(await _result(definition, data, session), root="$result")
    except UnauthorizedError as error:
        logger.warning("A call of %.200r is refused: it is not signed by a service of this system", name)
        response = error_response(error)
        response["WWW-Authenticate"] = "Bearer"
        return response
    except ANSWERED as error:
        return error_response(error)
    return JsonResponse(result, safe=False, headers={"Cache-Control": "no-store"})


def _session_of(request: HttpRequest, name: str) -> Json:
    header = HiddenText(request.headers.get("Authorization", ""))
    return remote.session_of(settings.REMOTE_SECRET, settings.JWT_SECRETS, name, header)


async def _result(definition: FunctionDefinition[Any, Any], data: dict[str, Json], session: Json) -> Any:
    function = definition.implementation
    with called_with(session):
        called = function(**data) if iscoroutinefunction(function) else await sync_to_async(function)(**data)
        return await called if isawaitable(called) else called
