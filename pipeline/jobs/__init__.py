"""One job per module; `barnabas pipeline list` finds them by themselves. `word_count.py` is the one to copy."""
