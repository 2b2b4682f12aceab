"""A reward: whether the digits that were asked for were said in order. Pauses (;) don't count."""


def score(prompt, response, reference):
    return float([word for word in response.split() if word != ";"] == reference.split())
