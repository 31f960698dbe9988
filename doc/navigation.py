"""Hook of MkDocs: adds the generated page of each command to the navigation, in the order of `lfn --help`."""

import pathlib
import re


def on_config(config):
    pages = pathlib.Path(config.docs_dir, "reference/commands")
    overview = pages / "lfn.md"
    if not overview.exists():
        raise SystemExit("no command pages: run .ci/site, which generates them")
    names = re.findall(r"\]\((lfn-[a-z]+)\.md\)", overview.read_text())
    entries = [{name.replace("-", " "): f"reference/commands/{name}.md"} for name in ["lfn", *names]]
    for section in config.nav:
        for item in section.get("Reference") or []:
            if isinstance(item, dict) and "Commands" in item:
                item["Commands"] = entries
    return config
