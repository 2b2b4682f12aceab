"""Writes sound files of the kinds that child processes in Python read: python_files.py FOLDER makes table.parquet, table.arrow, and
bytes/ with a tokenizer, its configuration and a chat template."""

import pathlib
import sys

import pyarrow
import pyarrow.parquet
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

folder = pathlib.Path(sys.argv[1])
table = pyarrow.table({"text": [None if i % 9 == 4 else f"document {i} " * (i % 5) for i in range(60)], "id": list(range(60))})
pyarrow.parquet.write_table(table, folder / "table.parquet", row_group_size=20)
with pyarrow.OSFile(str(folder / "table.arrow"), "wb") as file, pyarrow.ipc.new_stream(file, table.schema) as stream:
    stream.write_table(table, max_chunksize=20)
alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
tokenizer = Tokenizer(models.BPE({letter: i for i, letter in enumerate(alphabet)}, []))
tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
tokenizer.decoder = decoders.ByteLevel()
tokenizer.add_special_tokens([AddedToken("<e>", special=True)])
(folder / "bytes").mkdir()
tokenizer.save(str(folder / "bytes/tokenizer.json"))
(folder / "bytes/tokenizer_config.json").write_text('{"eos_token": "<e>", "model_max_length": 1e30}')
(folder / "bytes/chat_template.jinja").write_text(
    "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}{{ eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}")
