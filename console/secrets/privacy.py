"""Views through which values go: nobody keeps what they answer, and no page about an error shows what they hold."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.utils.cache import add_never_cache_headers
from django.views.debug import SafeExceptionReporterFilter
from django.views.decorators.debug import sensitive_post_parameters, sensitive_variables

View = Callable[..., HttpResponse]


class AlwaysHiding(SafeExceptionReporterFilter):
    """Hides what is marked as sensitive with `DEBUG = True`, too."""

    def is_active(self, request: HttpRequest | None) -> bool:
        """Always."""
        return True


def private(view: View) -> View:
    """Decorates such a view: `Cache-Control: no-store`, and error reports without local variables and without what was
    posted. Everything happens inside, also the rendering."""

    @sensitive_variables()
    def rendered(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        response = view(request, *args, **kwargs)
        if isinstance(response, TemplateResponse):
            response.render()
        return response

    @wraps(view)
    @sensitive_post_parameters()
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        request.exception_reporter_filter = AlwaysHiding()
        response = rendered(request, *args, **kwargs)
        add_never_cache_headers(response)
        return response

    return guarded
