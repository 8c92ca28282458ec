import pytest
from jinja2 import UndefinedError

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
