from __future__ import annotations

import pytest

from hgld.pages.requests import FormFields
from hgld.review.page.forms import label_action
from hgld.review.session import LabelAction


@pytest.mark.parametrize(
    ("comment", "before", "expected"),
    [
        ("", "", None),
        ("why", "why", None),
        (" why ", "", "why"),
        ("", "why", ""),
        ("onetwo", "one\r\ntwo", None),  # what a text field makes of a comment with two lines
        ("one two", "one\ntwo", "one two"),
    ],
)
def test_only_a_changed_comment_is_saved(comment: str, before: str, expected: str | None) -> None:
    form = FormFields([("choose", "drop"), ("comment", comment), ("comment_was", before)])
    assert label_action(form) == LabelAction("drop", comment=expected)


def test_form_without_a_comment_field_removes_the_comment_shown() -> None:
    assert label_action(FormFields([("choose", "drop"), ("comment_was", "why")])) == LabelAction("drop", comment="")
