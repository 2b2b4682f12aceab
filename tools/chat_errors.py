"""Why a conversation cannot be rendered, or not whole."""


class ChatError(Exception):
    """A message for the user: one line, also where a template's own message has several."""

    def __str__(self):
        return " ".join(line.strip() for line in super().__str__().splitlines() if line.strip())


class LostError(ChatError):
    """Something of a conversation would be lost: one more of a kind that ends a build with a count."""
