"""axe-core, a checker of accessibility, on the page that a browser shows.

Its rules hold what a program can check of WCAG 2.2 A and AA, and some good practices.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from selenium.webdriver import Chrome


def violations(browser: "Chrome") -> list[str]:
    """Return what axe-core finds on a page: all its rules in a light scheme, contrast also in a dark one."""
    from selenium_axe_python.axe import Axe

    Axe(browser).inject()  # type: ignore[no-untyped-call]
    found = _run_axe(browser, {"rules": {"target-size": {"enabled": True}}})
    _prefer(browser, "dark")
    found += _run_axe(browser, {"runOnly": ["color-contrast"]})
    _prefer(browser, "light")
    return found


def _run_axe(browser: "Chrome", options: dict[str, Any]) -> list[str]:
    run = "const [options, done] = arguments; axe.run(options).then(done, error => done({error: String(error)}))"
    result: dict[str, Any] = browser.execute_async_script(run, options | {"resultTypes": ["violations"]})
    assert "error" not in result, result["error"]
    return [
        f"{violation['id']}: {node['target']} {node['failureSummary']}"
        for violation in result["violations"]
        for node in violation["nodes"]
    ]


def _prefer(browser: "Chrome", scheme: str) -> None:
    """Let the browser prefer a colour scheme, ``light`` or ``dark``."""
    feature = {"name": "prefers-color-scheme", "value": scheme}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})
