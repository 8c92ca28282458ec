from hypothesis import example, given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.testclient import TestClient

from hgld.pages.server import read_upload


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
