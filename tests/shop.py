"""A page of another origin than the server's, which has nothing to do with foldaway but the npm package."""

from __future__ import annotations

import functools
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

HEAD = '<!doctype html><meta charset="utf-8"><link rel="icon" href="data:,"><title>a shop</title>'

# As the package's README says of pages without a bundler, for mode shares.
IMPORTS = {f"@hpke/{name}": f"./node_modules/@hpke/{name}/esm/mod.js" for name in ("core", "common")}

PAGE = f"""{HEAD}
<script type="importmap">{json.dumps({"imports": IMPORTS})}</script>
<script type="module">
import * as foldaway from "./dist/src/index.js"
window.foldaway = foldaway
</script>"""


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@contextmanager
def shop(folder: Path, package: Path, page: str = PAGE) -> Iterator[str]:
    """The origin of the page, which has the package's folder `dist` and what it depends on beside it."""
    for beside in ("dist", "node_modules"):
        (folder / beside).symlink_to(package / beside)
    (folder / "index.html").write_text(page, encoding="utf-8")
    with ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(_Quiet, directory=str(folder))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
