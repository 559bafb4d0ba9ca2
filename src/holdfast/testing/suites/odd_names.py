"""Names of files and folders that one store or another gets wrong."""

ODD_NAMES = [
    "with space",
    "lr=0.1,batch=32",
    "100%",
    "a%20b",
    "ümläut-雪",
    "plus+and&hash#question?",
    "~tilde",
    "brackets[1]{2}(3)",
    "star*",
    "colon:semi;comma,",
    "quote'\"",
    "...dots...",
    ".hidden",
    "UPPER-lower",
    "n" * 200,
]
