"""A real MediaWiki on this machine: a wiki in a folder, served by PHP until the end of a ``with`` block.

The programs are Debian's: ``apt-get install mediawiki php-cli php-sqlite3 php-intl``.
"""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any
from xml.sax.saxutils import escape

import requests

PROGRAM = Path("/usr/share/mediawiki")
_SETTINGS = r"""
$wgArticlePath = "/commons/wiki/$1";
$wgUsePathInfo = true;
# As at Wikimedia (https://phabricator.wikimedia.org/T292552), and since MediaWiki 1.40 by title case.
foreach ( mb_str_split( 'აბგდევზთიკლმნოპჟრსტუფქღყშჩცძწჭხჯჰß' ) as $letter ) {
    $wgOverrideUcfirstCharacters[$letter] = $letter;
}
# Stands in for the Wikibase client, which names the item of a page in its page properties.
$wgHooks['ParserFirstCallInit'][] = static function ( $parser ) {
    $parser->setHook( 'wikibaseitem', static function ( $text, $attributes, $parser ) {
        $parser->getOutput()->setPageProperty( 'wikibase_item', trim( $text ) );
        return '';
    } );
};
"""
#: For a wiki with files. Pillow stands in for ImageMagick, which makes Commons' thumbnails.
_UPLOAD_SETTINGS = r"""
$wgEnableUploads = true;
$wgFileExtensions = [ 'png', 'jpg', 'jpeg', 'tif' ];
$wgUploadDirectory = "%(uploads)s";
$wgUploadPath = "$wgServer/commons/images";
$wgMaxShellMemory = 0;
$wgUseImageMagick = false;
$wgCustomConvertCommand = "%(python)s %(script)s %%s %%d %%w %%h";
"""
_SCALE = """
import sys
from PIL import Image
source, target, width, height = sys.argv[1:]
Image.open(source).resize((int(width), int(height))).save(target)
"""
_ROUTER = r"""<?php
$path = parse_url( $_SERVER['REQUEST_URI'], PHP_URL_PATH );
if ( str_starts_with( $path, '/commons/images/' ) ) {
    $file = '%(uploads)s/' . rawurldecode( substr( $path, strlen( '/commons/images/' ) ) );
    if ( !is_file( $file ) ) {
        http_response_code( 404 );
        return true;
    }
    header( 'Content-Type: ' . mime_content_type( $file ) );
    readfile( $file );
    return true;
}
$script = $path === '/commons/w/api.php' ? 'api.php' : 'index.php';
$_SERVER['SCRIPT_NAME'] = "/commons/w/$script";
chdir( '%(program)s' );
require "%(program)s/$script";
"""
_NAMESPACES = {"Category": 14, "Template": 10, "File": 6}


def is_installed() -> bool:
    """Return whether MediaWiki and PHP are installed."""
    return PROGRAM.is_dir() and shutil.which("php") is not None


class MediaWiki:
    """A wiki with the given pages, at ``base_url`` and below the paths of Commons.

    Args:
        folder: Empty folder for the wiki's files.
        pages: Wikitext by title with namespace. ``<wikibaseitem>Q1</wikibaseitem>`` names the item of a page.
        files: Contents of files by name, such as ``Comet Falls.jpg``.
    """

    def __init__(self, folder: Path, pages: Mapping[str, str], files: Mapping[str, bytes] | None = None) -> None:
        self._folder, self._pages, self._files = folder, pages, files or {}
        self._uploads = folder / "images"
        with socket.socket() as listener:
            listener.bind(("127.0.0.1", 0))
            self._port: int = listener.getsockname()[1]
        self.base_url = f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> "MediaWiki":
        self._install()
        if self._files:
            self._import_files()
        self._import_pages()
        router = self._folder / "router.php"
        router.write_text(_ROUTER % {"program": PROGRAM, "uploads": self._uploads}, encoding="utf-8")
        with (self._folder / "server.log").open("wb") as log:
            self._server = subprocess.Popen(
                ["php", "-S", f"127.0.0.1:{self._port}", str(router)],
                env=self._environment() | {"PHP_CLI_SERVER_WORKERS": "3"},
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        try:
            self._wait_until_it_answers()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def _install(self) -> None:
        database = self._folder / "data"
        database.mkdir()
        self._maintain(
            *("install.php", "--confpath", self._folder, "--dbtype", "sqlite", "--dbpath", database),
            *("--server", self.base_url, "--scriptpath", "/commons/w"),
            *("--pass", "a long password", "Commons", "admin"),
        )
        with (self._folder / "LocalSettings.php").open("a", encoding="utf-8") as settings:
            settings.write(_SETTINGS)

    def _import_files(self) -> None:
        script, incoming = self._folder / "scale.py", self._folder / "incoming"
        script.write_text(_SCALE, encoding="utf-8")
        with (self._folder / "LocalSettings.php").open("a", encoding="utf-8") as settings:
            settings.write(_UPLOAD_SETTINGS % {"uploads": self._uploads, "python": sys.executable, "script": script})
        for folder in (self._uploads, incoming):
            folder.mkdir()
        for name, content in self._files.items():
            (incoming / name).write_bytes(content)
        self._maintain("importImages.php", incoming)

    def _import_pages(self) -> None:
        pages = "".join(
            f"<page><title>{escape(title)}</title><ns>{_NAMESPACES[title.partition(':')[0]]}</ns><revision>"
            f"<model>wikitext</model><format>text/x-wiki</format><text>{escape(text)}</text></revision></page>\n"
            for title, text in self._pages.items()
        )
        dump = self._folder / "pages.xml"
        dump.write_text(
            '<mediawiki xmlns="http://www.mediawiki.org/xml/export-0.10/" version="0.10" xml:lang="en">\n'
            f"{pages}</mediawiki>\n",
            encoding="utf-8",
        )
        self._maintain("importDump.php", dump)
        self._maintain("runJobs.php")

    def _maintain(self, script: str, *arguments: Any) -> None:
        command = ["php", str(PROGRAM / "maintenance" / script), *map(str, arguments)]
        subprocess.run(command, check=True, capture_output=True, env=self._environment(), timeout=120)

    def _environment(self) -> dict[str, str]:
        settings = self._folder / "LocalSettings.php"
        return dict(os.environ) | ({"MW_CONFIG_FILE": str(settings)} if settings.exists() else {})

    def _wait_until_it_answers(self) -> None:
        for _ in range(200):
            try:
                if requests.get(f"{self.base_url}/commons/w/api.php", timeout=10).ok:
                    return
            except requests.ConnectionError:
                time.sleep(0.05)
        raise RuntimeError((self._folder / "server.log").read_text(encoding="utf-8", errors="replace"))

    def _stop(self) -> None:
        # The workers are children of the server: signal the whole group.
        os.killpg(self._server.pid, signal.SIGTERM)
        self._server.wait()
