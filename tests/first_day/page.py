"""A page that is a script: the files that it shows, and the commands between them, in the page's order.

A fence with a title is a file. A fence without a language has commands, run by one shell that ends at the first that fails.
`<!--needs: COMMAND-->` before a fence leaves its commands out where that command fails.
"""

import re

FENCE = re.compile(r"(?:<!--needs: (?P<needs>[^\n]*)-->\n)?^```(?P<language>\w*)(?: title=\"(?P<title>[^\"]+)\")?\n(?P<text>.*?)^```",
                   re.MULTILINE | re.DOTALL)


class Part:
    def __init__(self, section, found):
        self.section, self.needs, self.title, self.text = section, found["needs"], found["title"], found["text"]
        self.is_file, self.is_commands = bool(found["title"]), not found["language"] and not found["title"]


def parts(text):
    """Files and commands of a page's text, each with the heading that it stands under."""
    for section in re.split(r"^(?=## )", text, flags=re.MULTILINE):
        heading = section.splitlines()[0].removeprefix("## ") if section else ""
        for found in FENCE.finditer(section):
            part = Part(heading, found)
            if part.is_file or part.is_commands:
                yield part


def lone_files(text):
    """Names of files that are shown and that no later commands, nor a later file, name."""
    found = list(parts(text))
    for i, part in enumerate(found):
        if part.is_file and not any(name in later.text for later in found[i + 1:] for name in (part.title, part.title.rpartition("/")[0] or part.title)):
            yield part.title
