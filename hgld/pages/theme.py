"""The colour theme that a browser keeps in a cookie."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

_COOKIE, _THEMES = "hgld-theme", ("auto", "light", "dark")


def theme_of(request: Request) -> str:
    """Return the theme of a browser, ``auto`` unless another one was chosen."""
    theme = request.cookies.get(_COOKIE, "auto")
    return theme if theme in _THEMES else "auto"


def keep_theme(response: Response, theme: str) -> None:
    """Let the browser keep a theme for a year; unknown ones are ignored."""
    if theme in _THEMES:
        response.set_cookie(_COOKIE, theme, max_age=31_536_000, samesite="strict")
