"""The text the test tokenizers are trained on: sentences put together from word lists, the same for
every run.
"""

import random

SUBJECTS = ("the river|a small boat|the old lighthouse|our neighbour|every winter|the baker's "
            "daughter|a quiet street|the café|Zoë|the naïve student").split("|")
VERBS = ("carries|remembers|doesn't see|walks towards|is painting|had forgotten|will measure|can't "
         "find|sings about|keeps").split("|")
OBJECTS = ("the bridge|twelve blue stones|an answer|its own shadow|the last train|a letter from "
           "Łódź|bread and butter|3.14 metres of rope|the year 1907|über-long words").split("|")
ENDINGS = [".", "!", "?", "; nobody knows why.", ", they say.", " (again).", " — at noon."]
OTHER = [
    "Привет, мир!", "日本語の文章です。", "안녕하세요 세계",
    "שלום עולם",
    "नमस्ते दुनिया", "😀 fine 👍🏽 thanks",
    "a\tb\tc", "x = f(y) + 42 * z[7];", "http://example.org/a?b=c&d=e"
]


def sentences(count=1500, seed=11):
    chance = random.Random(seed)
    lines = []
    for number in range(count):
        line = " ".join(
            chance.choice(words) for words in (SUBJECTS, VERBS, OBJECTS)) + chance.choice(ENDINGS)
        lines.append(line[0].upper() + line[1:])
        if number % 9 == 0:
            lines.append(chance.choice(OTHER))
    return lines


# Texts whose encodings are compared: ordinary ones and those that break tokenizers.
TEXTS = [
    "",
    " ",
    "\n",
    "\t \n ",
    "a",
    "The river carries the bridge.",
    "the RIVER Carries The Bridge",
    "  leading and trailing  ",
    "two  spaces   three",
    "don't can't won't I'm we've they're it's",
    "naïve café Zoë Łódź",
    "nai\u0308ve cafe\u0301",
    "日本語の文章です。",
    "안녕하세요 세계",
    "שלום עולם",
    "नमस्ते दुनिया",
    "مرحبا بالعالم",
    "😀👍🏽👨‍👩‍👧‍👦🇩🇪",
    "a\u0000b",
    "\ufeffbom",
    "zero\u200bwidth\u200djoin",
    "\u00a0nbsp\u3000wide",
    "tab\tnew\nline\r\nreturn",
    "x = f(y) + 42 * z[7];  // note",
    "1234567890 3.14159 1,000,000 1e-5",
    "http://example.org/a?b=c&d=e#f",
    "!?.,;:-_()[]{}<>/\\|@#$%^&*~`'\"",
    "ﬁ ﬂ Ⅷ ½ ² ™ ㍿",
    "e\u0301\u0323 \u1e69 \u0073\u0323\u0307",
    "\u202eright-to-left\u202c",
    "[CLS] [MASK] [SEP] <|endoftext|> </s> <unk>",
    "word[MASK]word <|endoftext|>x</s>",
    "a" * 120,
    "supercalifragilisticexpialidocious" * 4,
    "ab " * 60,
    "\ud7ff\ue000\ufffd\U0010ffff",
    "İstanbul ıI ß ẞ ﬆ",
]
