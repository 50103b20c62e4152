"""Stand-ins for the two programs, without a model: ``fake_programs.py NAME JOURNAL [BEHAVIOUR]``.

What happens is written to the journal, a line each. The fake frontend listens at PAGEWIRE_PORT and is ready once the
engine is up. Behaviours: ``fail`` exits with status 1 at once, ``crash-once`` exits with 5 at its first start as soon
as readiness was announced, ``crash-always`` at each start, ``stubborn`` ignores SIGTERM.
"""

import json
import os
import signal
import sys
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


class Handler(BaseHTTPRequestHandler):
    journal: Path

    def do_GET(self) -> None:
        models = {"data": [{"id": os.environ.get("PAGEWIRE_SERVED_MODEL_NAME", "toy")}]}
        body = json.dumps(models if self.path == "/v1/models" else {}).encode()
        ready = self.path != "/ready" or "engine up" in self.journal.read_text()
        self.send_response(200 if ready else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def main() -> None:
    name, journal, behaviour = sys.argv[1], Path(sys.argv[2]), (sys.argv[3:] or [""])[0]

    def note(event: str) -> None:
        with journal.open("a") as file:
            file.write(f"{name} {event}\n")

    def stop(number: int, _frame: object) -> None:
        note("stopped")
        sys.exit(0)

    note(f"started {os.getpid()}")
    print(f"hello from {name}")
    if behaviour == "fail":
        sys.exit(1)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if behaviour == "stubborn" else stop)
    note("up")
    first = journal.read_text().count(f"{name} started") == 1
    if behaviour == "crash-always" or (behaviour == "crash-once" and first):
        until_announced(journal)
        sys.exit(5)
    if name == "frontend":
        Handler.journal = journal
        ThreadingHTTPServer(("127.0.0.1", int(os.environ["PAGEWIRE_PORT"])), Handler).serve_forever()
    while True:
        time.sleep(0.05)


def until_announced(journal: Path) -> None:
    while not journal.with_suffix(".announced").exists():
        time.sleep(0.02)


if __name__ == "__main__":
    main()
