"""The official test suite of JSON Schema: what we accept lets no invalid document through.

The suite is in the source distribution of ``jsonschema``; the environment variable JSON_SCHEMA_SUITE names its folder,
the one that holds ``tests``. Run with ``-s`` to see the counts.
"""

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from tests.json_schema_cases import allows, matcher_of

pytestmark = pytest.mark.slow

SUITE = os.environ.get("JSON_SCHEMA_SUITE", "")
# Of the optional parts, those that say what is valid where the standard leaves a choice.
OPTIONAL = ("format", "bignum.json", "ecmascript-regex.json", "float-overflow.json", "non-bmp-regex.json")


@pytest.mark.skipif(not SUITE, reason="JSON_SCHEMA_SUITE is not set")
@pytest.mark.parametrize("draft", ["draft2020-12", "draft2019-09", "draft7", "draft6", "draft4"])
def test_no_accepted_schema_of_the_official_suite_allows_an_invalid_document(draft: str) -> None:
    counts: Counter[str] = Counter()
    let_through = []
    for path in _files(Path(SUITE) / "tests" / draft):
        for group in json.loads(path.read_text(encoding="utf-8")):
            matcher = matcher_of(group["schema"])
            counts["refused" if matcher is None else "accepted"] += 1
            for test in group["tests"] if matcher else ():
                allowed = allows(matcher, test["data"])
                counts[f"{'valid' if test['valid'] else 'invalid'} {'allowed' if allowed else 'excluded'}"] += 1
                if allowed and not test["valid"]:
                    let_through.append(f"{path.name}: {group['description']}: {test['description']}")
    print(draft, dict(sorted(counts.items())))
    assert not let_through, "\n".join(let_through)
    assert counts["accepted"] > 100


def _files(folder: Path) -> list[Path]:
    optional = [folder / "optional" / name for name in OPTIONAL]
    files = sorted(folder.glob("*.json"))
    for path in optional:
        files += sorted(path.glob("*.json")) if path.is_dir() else [path]
    return [file for file in files if file.exists()]
