"""The style sheets, scripts and icons of a page."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import FileResponse, Response
from starlette.routing import Route

from hgld.pages.templates import COMMON, template_folder

_MEDIA_TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}


def static_route(name: str) -> Route:
    """Return the route ``/static/...`` of the files of a kind of page, and of those that all pages have in common.

    Args:
        name: Name of the folder of the page's templates.
    """
    files = {
        path.relative_to(folder).as_posix(): path
        for folder in (template_folder(COMMON), template_folder(name))
        for suffix in _MEDIA_TYPES
        for path in folder.rglob(f"*{suffix}")
    }

    async def static_file(request: Request) -> Response:
        path = files.get(request.path_params["name"])
        if path is None:
            return Response(status_code=404)
        return FileResponse(path, media_type=_MEDIA_TYPES[path.suffix])

    return Route("/static/{name:path}", static_file)
