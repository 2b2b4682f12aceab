"""Manual pages of the program and each of its commands, from --help: man1/sluice.1, man1/sluice-train.1 and so on.

CLI11's help has sections of lines `  name      text`, whose text goes on in lines that are indented further.
"""

import gzip
import pathlib
import re
import subprocess

SECTION = re.compile(r"^([A-Z][\w ]*):\n((?:^  .*\n?|^\n)*)", re.MULTILINE)


def help_of(program, *words):
    return subprocess.run([program, *words, "--help"], check=True, capture_output=True, text=True).stdout


def entries(body):
    """(name, text) of a section's lines."""
    found = []
    for line in body.splitlines():
        entry = re.match(r"^  (\S.*?)(?:  +(\S.*)| *)$", line)
        if entry and not line.startswith("   "):
            found.append([entry.group(1), entry.group(2) or ""])
        elif line.strip() and found:
            found[-1][1] = f"{found[-1][1]} {line.strip()}".strip()
    return found


def sections(text):
    return {name: entries(body) for name, body in SECTION.findall(text)}


def subcommands(text):
    return [name for name, _ in sections(text).get("Subcommands", [])]


def escaped(text):
    """Text as roff takes it: backslashes, hyphens that are typed, and lines that would begin with a request."""
    text = text.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{text}" if text[:1] in (".", "'") else text


def page(words, text, version, date):
    """A page's roff, of a command's help."""
    name, about = "-".join(words), text.strip().splitlines()[0]
    usage = re.search(r"^Usage: (.*)$", text, re.M).group(1)
    lines = [f'.TH "{name.upper()}" 1 "{date}" "sluice {version}" "Sluice"', ".SH NAME", f"{escaped(name)} \\- {escaped(about)}",
             ".SH SYNOPSIS", f".B {escaped(usage)}"]
    for title, found in sections(text).items():
        lines.append(f".SH {title.upper()}")
        for entry, told in found:
            lines += [".TP", f".B {escaped(entry)}", escaped(told) or "\\&"]
    others = ["-".join([*words, each]) for each in subcommands(text)] or ["-".join(words[:-1])]
    lines += [".SH SEE ALSO", ", ".join(f"\\fB{escaped(each)}\\fR(1)" for each in others if each), ""]
    return "\n".join(lines)


def write(program, folder, version, date, words=("sluice",)):
    """Writes the pages of a command and of all below it; returns how many."""
    text = help_of(program, *words[1:])
    folder.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(folder / f"{'-'.join(words)}.1.gz", "wb", mtime=0) as file:
        file.write(page(words, text, version, date).encode())
    return 1 + sum(write(program, folder, version, date, (*words, each)) for each in subcommands(text))


def install(program, prefix, version, date):
    """Writes the files that packages put below their prefix: pages, and completions where shells look for them."""
    count = write(program, prefix / "share/man/man1", version, date)
    for shell, place in (("bash", "share/bash-completion/completions/sluice"), ("zsh", "share/zsh/site-functions/_sluice"),
                         ("fish", "share/fish/vendor_completions.d/sluice.fish")):
        (prefix / place).parent.mkdir(parents=True, exist_ok=True)
        script = subprocess.run([program, "completion", shell], check=True, capture_output=True, text=True).stdout
        pathlib.Path(prefix / place).write_text(script)
    return count
