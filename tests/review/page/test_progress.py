from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

from hgld.review.page.views import seconds_per_label
from hgld.review.state import Change
from tests.review.sessions import label, open_session


def test_pace_ignores_pauses(tmp_path: Path) -> None:
    began = datetime(2026, 1, 1, tzinfo=timezone.utc)
    with open_session(tmp_path / "a.sqlite", [label(n) for n in range(1, 40)]) as session:
        seconds = 0
        for n in range(1, 21):
            seconds += 8 * 3600 if n == 10 else 5
            value = {"label": "", "decision": "drop", "group": None, "comment": ""}
            change = Change("decision", f"Q{n}", value, at=began + timedelta(seconds=seconds))
            session.store.append([change])
        assert seconds_per_label(list(session.state.steps.values())) == 5
        assert seconds_per_label(list(session.state.steps.values())[:3]) is None
