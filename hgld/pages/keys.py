"""The keys that admit a browser to the page: a key that works once is exchanged for a secret in a cookie.

An address stays in the history of a browser, in logs and in the scrollback of a terminal; a used key there is
worthless. One key is valid at a time. It is replaced when it is used, and the new one is for the next browser.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable

_N_BYTES = 24


class PageKeys:
    """Keys of one running page.

    Attributes:
        key: Key that is valid now.
        cookie_name: Name of the cookie for the secret.
        on_new_key: Called with the new key after one was used.

    Args:
        on_new_key: See above.
    """

    def __init__(self, on_new_key: Callable[[str], None] = lambda key: None) -> None:
        self.key = secrets.token_urlsafe(_N_BYTES)
        # Browsers share cookies between all ports of a host; the name keeps the pages of two annotators apart.
        self.cookie_name = f"hgld-{secrets.token_hex(6)}"
        self.on_new_key = on_new_key
        self._secret = secrets.token_urlsafe(_N_BYTES)

    def is_valid(self, key: str) -> bool:
        """Return whether this is the key that is valid now, in constant time."""
        return secrets.compare_digest(key.encode(), self.key.encode())

    def is_secret(self, value: str) -> bool:
        """Return whether this is the secret that a key is exchanged for, in constant time."""
        return secrets.compare_digest(value.encode(), self._secret.encode())

    def exchange(self, key: str) -> str | None:
        """Return the secret and make a new key; None if the key is not valid (any more)."""
        if not self.is_valid(key):
            return None
        self.key = secrets.token_urlsafe(_N_BYTES)
        self.on_new_key(self.key)
        return self._secret
