"""The site's navigation names pages that exist, and every page of docs/; `make docs` checks links and headings."""

import re

import repository


def main():
    text = (repository.ROOT / "mkdocs.yml").read_text()
    named = re.findall(r": (\S+\.md)$", text, re.MULTILINE)
    faults = [f"mkdocs.yml: {page} does not exist" for page in named if not (repository.ROOT / page).is_file()]
    faults += [f"mkdocs.yml: the navigation names {page} twice" for page in named if named.count(page) > 1]
    faults += [f"mkdocs.yml: the navigation leaves out {page}" for page in repository.files("docs/*.md") if str(page) not in named]
    repository.finish(len(named), faults)


if __name__ == "__main__":
    main()
