"""safetensors files as bytes. Standard library only."""

import json
import struct


def read_tensors(path):
    """{name: (dtype, shape, bytes)} and the metadata."""
    content = path.read_bytes()
    begin = 8 + struct.unpack_from("<Q", content)[0]
    header = json.loads(content[8:begin])
    metadata = header.pop("__metadata__", {})
    return {name: (of["dtype"], of["shape"], content[begin + of["data_offsets"][0]:begin + of["data_offsets"][1]])
            for name, of in header.items()}, metadata


def write_tensors(path, tensors):
    """The file of {name: (dtype, shape, bytes)}."""
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(content)]}
        at += len(content)
    begin = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(begin)) + begin + b"".join(content for *_, content in tensors.values()))
