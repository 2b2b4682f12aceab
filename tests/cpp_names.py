"""The public names that C++ headers declare: types, functions and fields, of which enumerators and constants are some. Reads
text, compiles nothing; a name that is no header's own (a macro's, a private member's) is left out."""

import re

CPP_NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\((?:.|\n)*?\)\1"|"(?:\\.|[^"\\\n])*"|'
    r"'(?:\\.|[^'\\\n])+'(?!\w)", re.DOTALL)
DIRECTIVE = re.compile(r"^[ \t]*#(?:\\\n|[^\n])*", re.MULTILINE)
TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.']*|::|->|<=>|<<|&&|\|\||[^\s\w]")


def tokens_of(text):
    """C++ tokens without comments, directives and literals; a string is the token `""`."""
    def blanked(found):
        return " " if found[0].startswith(("//", "/*")) else ' "" ' if '"' in found[0] else " 0 "

    text = CPP_NOISE.sub(blanked, text)
    text = DIRECTIVE.sub("", text)
    return ['""' if token == '"' else token for token in TOKEN.findall(text.replace('""', '"'))]


OPEN = {"(": ")", "{": "}", "[": "]"}
NO_NAMES = {"const", "noexcept", "override", "final", "mutable", "volatile", "return", "operator", "default", "delete",
            "requires", "decltype", "sizeof", "alignas", "true", "false", "explicit", "static", "inline", "constexpr",
            "virtual", "struct", "class", "enum", "typename", "auto", "void", "int", "bool", "char", "float", "double",
            "unsigned", "signed", "long", "short", "extern", "thread_local", "__restrict__", "__global__", "__device__"}
WORD = re.compile(r"[A-Za-z_]\w*$")


class Header:
    """The public declarations of one header, as (kind, qualified name)."""

    def __init__(self, text):
        self.tokens = tokens_of(text)
        self.at = 0
        self.found = []
        self.hidden = 0  # records around that are private
        self.scope([], "namespace", public=True)

    def peek(self, ahead=0):
        place = self.at + ahead
        return self.tokens[place] if place < len(self.tokens) else ""

    def add(self, kind, scope, name):
        if self.hidden or name.endswith("_") or name.startswith("__"):
            return
        if scope and scope[-1].split("::")[-1] == name and kind == "function":  # a constructor
            return
        self.found.append((kind, "::".join([*scope, name])))

    def skip_balanced(self):
        """Behind the bracket that closes the one here."""
        depth = 0
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            self.at += 1
            if token in OPEN:
                depth += 1
            elif token in OPEN.values():
                depth -= 1
                if depth == 0:
                    return

    def skip_angles(self):
        depth = 0
        while self.at < len(self.tokens):
            token = self.peek()
            if token in OPEN:
                self.skip_balanced()
                continue
            self.at += 1
            depth += {"<": 1, ">": -1, "<<": 2}.get(token, 0)
            if depth == 0:
                return

    def skip_statement(self):
        while self.at < len(self.tokens) and self.peek() != ";":
            if self.peek() in OPEN:
                self.skip_balanced()
            else:
                self.at += 1
        self.at += 1

    def scope(self, names, kind, public):
        """Declarations up to the closing brace."""
        while self.at < len(self.tokens):
            token = self.peek()
            if token == "}":
                self.at += 1
                return
            if token == ";":
                self.at += 1
            elif token in ("public", "private", "protected") and self.peek(1) == ":":
                public = token == "public"
                self.at += 2
            elif token == "namespace":
                self.namespace(names)
            elif token == "template":
                self.at += 1
                self.skip_angles()
            elif token in ("friend", "typedef", "static_assert") or (token == "extern" and self.peek(1) == '""'):
                if token == "extern" and self.peek(2) == "{":
                    self.at += 3
                    self.scope(names, kind, public)
                else:
                    self.skip_statement()
            elif token == "using":
                if self.peek(2) == "=" and public:
                    self.add("type", names, self.peek(1))
                self.skip_statement()
            elif token == "enum":
                self.enumeration(names, public)
            elif token in ("class", "struct", "union") and self.is_definition():
                self.record(names, token, public)
            else:
                self.declaration(names, public)

    def namespace(self, names):
        self.at += 1
        inner = []
        while self.peek() not in ("{", "=", ";", ""):
            if WORD.match(self.peek()):
                inner.append(self.peek())
            self.at += 1
        if self.peek() != "{":
            self.skip_statement()
            return
        self.at += 1
        if inner:
            self.scope([*names, *(name for name in inner if name != "sluice")], "namespace", True)
        else:
            self.scope(names, "namespace", False)

    def is_definition(self):
        """Whether a record's body follows before the statement or a declarator ends."""
        place = self.at
        while place < len(self.tokens) and self.tokens[place] not in (";", "{", "(", "="):
            place += 1
        return place < len(self.tokens) and self.tokens[place] == "{"

    def record(self, names, word, public):
        self.at += 1
        name = ""
        while self.peek() not in ("{", ":", ";", ""):
            token = self.peek()
            if token == "<":
                self.skip_angles()
                continue
            if token in OPEN:
                self.skip_balanced()
                continue
            if WORD.match(token) and token not in ("final", "alignas"):
                name = f"{name}::{token}" if self.tokens[self.at - 1] == "::" and name else token
            self.at += 1
        while self.peek() not in ("{", ";", ""):
            self.at += 1
        if public and name:
            self.add("type", names, name)
        self.at += 1
        self.hidden += not public
        self.scope([*names, name] if name else names, word, word != "class")
        self.hidden -= not public
        # Declarators behind the body, as `} kTable[] = …;`.
        self.declaration(names, public)

    def enumeration(self, names, public):
        self.at += 1
        if self.peek() in ("class", "struct"):
            self.at += 1
        name = ""
        while self.peek() not in ("{", ";", ""):
            if not name and WORD.match(self.peek()):
                name = self.peek()
            self.at += 1
        if self.peek() != "{":
            self.at += 1
            return
        self.at += 1
        if public and name:
            self.add("type", names, name)
        inner = [*names, name] if name else names
        expected = True
        while self.at < len(self.tokens) and self.peek() != "}":
            token = self.peek()
            if token in OPEN:
                self.skip_balanced()
                continue
            if token == ",":
                expected = True
            elif expected and WORD.match(token):
                if public:
                    self.add("field", inner, token)
                expected = False
            self.at += 1
        self.at += 1
        self.declaration(names, public)

    def declaration(self, names, public):
        """A function, or variables: its names, past its end."""
        last, before, named, assigned = "", "", [], False
        if self.peek() in ("class", "struct", "union") and WORD.match(self.peek(1)) and self.peek(2) == ";":
            self.at += 3
            return
        while self.at < len(self.tokens):
            token = self.peek()
            if token == "operator":
                self.skip_function()
                return
            if token == "<" and WORD.match(last) and not assigned:
                self.skip_angles()
                last = ">"
                continue
            if token == "(" and not assigned:
                if WORD.match(last) and last not in NO_NAMES and before not in (",",):
                    if public and before != "~" and before != "::":
                        self.add("function", names, last)
                    self.skip_function()
                    return
                self.skip_balanced()
                last = ")"
                continue
            if token == "[":
                if not assigned and WORD.match(last):
                    named.append(last)
                    last = ""
                self.skip_balanced()
                continue
            if token == "{":
                if not assigned and WORD.match(last):
                    named.append(last)
                    last = ""
                self.skip_balanced()
                continue
            self.at += 1
            if token in (";", ",", "="):
                if not assigned and WORD.match(last) and last not in NO_NAMES:
                    named.append(last)
                assigned = token == "=" or (assigned and token == ";")
                last, before = token, ""
                if token == ";":
                    break
                continue
            if token == ":" and not assigned and WORD.match(last):  # a bit field
                named.append(last)
                last = ""
                continue
            before, last = last, token
        if public:
            for name in named:
                self.add("field", names, name)

    def skip_function(self):
        """From a parameter list, or `operator`, past the declaration or body."""
        while self.at < len(self.tokens):
            token = self.peek()
            if token == ";":
                self.at += 1
                return
            if token == "{":
                self.skip_balanced()
                # In a list of initialisers bodies of members come first: `a_{1}, b_{2} {`.
                if self.peek() in (",", "{"):
                    continue
                return
            if token in OPEN:
                self.skip_balanced()
            else:
                self.at += 1


def of_header(text):
    """(kind, qualified name without `sluice::`) of each public declaration."""
    return Header(text).found
