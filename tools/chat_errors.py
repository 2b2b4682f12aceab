"""Why a conversation cannot be rendered, or not whole."""


class ChatError(Exception):
    """A message for the user."""


class LostError(ChatError):
    """Something of a conversation would be lost: one more of a kind that ends a build with a count."""
