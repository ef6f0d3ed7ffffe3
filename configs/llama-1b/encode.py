"""Encodes lines of JSON, such as FineWeb-Edu's `{"text": ...}`, as arrays of tokens. Run it once, near the bucket:

python encode.py tokenizer.json FOLDER '<|end_of_text|>' < lines.jsonl
"""

import json
import pathlib
import sys

import numpy as np
from tokenizers import Tokenizer

tokenizer, folder = Tokenizer.from_file(sys.argv[1]), pathlib.Path(sys.argv[2])
tokenizer.no_truncation()  # which the file may ask for
end = tokenizer.token_to_id(sys.argv[3])
folder.mkdir()
for number, line in enumerate(sys.stdin):
    ids = [*tokenizer.encode(json.loads(line)["text"], add_special_tokens=False).ids, end]
    np.save(folder / f"{number:09}.npy", np.array(ids, dtype=np.uint32))
