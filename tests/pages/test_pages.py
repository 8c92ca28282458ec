import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jinja2 import UndefinedError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from hgld.pages.server import read_upload
from hgld.pages.templates import page_templates, template_folder


def test_value_that_is_not_given_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="'title' is undefined"):
        page_templates("retrieval").get_template("photo_page.html").render()


def test_templates_of_a_folder_are_compiled_once() -> None:
    assert page_templates("review") is page_templates("review")
    assert page_templates("review").get_template("page.html") is page_templates("review").get_template("page.html")


@pytest.mark.parametrize("name", ["review", "retrieval"])
def test_all_templates_compile(name: str) -> None:
    templates = sorted(path.name for path in template_folder(name).glob("*.html"))
    assert templates
    for template in templates:
        page_templates(name).get_template(template)


async def echo(request: Request) -> Response:
    return Response(await read_upload(request))


CLIENT = TestClient(Starlette(routes=[Route("/", echo, methods=["POST"])]))


@given(st.binary())
@example(b"\r\n--")
@example(b"\r\n\r\n")
@example(b"\n\r\r\n")
def test_file_arrives_as_it_was_sent(content: bytes) -> None:
    for files in ({"image": ("a.jpg", content)}, {"image": ('filename="x"\r\n', content)}):
        assert CLIENT.post("/", files=files, data={"note": "filename"}).content == content
    if content:
        assert CLIENT.post("/", content=content).content == content
