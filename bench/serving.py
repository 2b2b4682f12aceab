"""Load on `sluice serve`: an open loop of streamed requests, percentiles of what clients wait for, beside the generator
without HTTP.

Requests come by a Poisson process of --request-rate, whatever has been answered (open loop; "inf": all at once, or as many as
--max-concurrency lets in). Prompts differ in length by a factor of twenty. Names are those of vLLM's `vllm bench serve`: TTFT is the time to
the first token, TPOT the time per token behind it, ITL the time between two tokens. Rows:

- `load`: the requests, whose total throughput stands beside that of `sluice generate` on the same prompts, and the processor time
  of both programs per token that they said, their start left out, which other programs on the machine change less;
- `alone` and `beside`: one client's TTFT without and with another client of 100 times its connections, from another address.

Both sides of a comparison take turns, --rounds times; the median of the rounds' ratios is given, as other programs slow both.

    make bench-serve
"""

import argparse
import asyncio
import json
import multiprocessing
import os
import random
import re
import resource
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests" / "integration"))

from harness import children, hardware, revision  # noqa: E402

WORDS = 2048
SHAPE = """
[model]
layers = 4
hidden = 256
heads = 8
kv_heads = 4
ffn_hidden = 672
vocab = {words}
[data]
train = [["{folder}/corpus/corpus", 1.0]]
context_length = 256
tokens_per_step = 512
[train]
steps = 1
[parallel]
strategies = ["<1,1,1>"]
calibration = "analytic"
[checkpoint]
every = 1
[log]
dir = "{folder}/run"
tensorboard = false
"""


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} ended with {done.returncode}: {done.stderr[-2000:]}")
    return done


def write_tokenizer(folder, words):
    """Words that stand for ids, and behind them an end token."""
    folder.mkdir()
    end = {"id": words, "content": "</s>", "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    (folder / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "pre_tokenizer": {"type": "Whitespace"}, "added_tokens": [end],
        "model": {"type": "WordLevel", "vocab": {f"w{index}": index for index in range(words)}, "unk_token": "w0"}}))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    return folder


def write_model(folder, sluice):
    """Random weights, and a tokenizer with an end token that they have no row for: all texts run to their last token, and each
    token is an event."""
    (folder / "text.txt").write_text("w1 w2 w3 w4\n" * 500)
    run(sluice, "corpus", "build", folder / "text.txt", "--out", folder / "corpus", "--tokenizer", write_tokenizer(folder / "words", WORDS - 1))
    (folder / "run.toml").write_text(SHAPE.format(folder=folder, words=WORDS))
    run(sluice, "train", "--config", folder / "run.toml")
    return ["--model", folder / "run", "--tokenizer", write_tokenizer(folder / "tokenizer", WORDS)]


def prompts_of(count, shortest, seed):
    source = random.Random(seed)
    return [[source.randrange(WORDS) for _ in range(int(shortest * 20 ** source.random()))] for _ in range(count)]


class Measured:
    """When a request was sent, and when each of its events came."""

    def __init__(self):
        self.sent, self.events, self.status, self.tokens = time.perf_counter(), [], 0, 0

    @property
    def ttft(self):
        return self.events[0] - self.sent

    @property
    def itl(self):
        return [after - before for before, after in zip(self.events, self.events[1:])]


def request_of(prompt, tokens):
    """A streamed request as its bytes."""
    body = json.dumps({"prompt": prompt, "max_tokens": tokens, "temperature": 0, "stream": True,
                       "stream_options": {"include_usage": True}})
    return (f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}").encode()


async def ask(port, prompt, tokens, source):
    measured = Measured()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=(source, 0))
    try:
        writer.write(request_of(prompt, tokens))
        measured.status = int((await reader.readline()).split()[1])
        async for line in reader:
            if b'"usage":{' in line:
                measured.tokens = json.loads(line[len(b"data: "):])["usage"]["completion_tokens"]
            elif line.startswith(b"data: {"):
                measured.events.append(time.perf_counter())
    finally:
        writer.close()
    return measured


async def open_loop(port, prompts, tokens, rate, seed, source="127.0.0.1", concurrency=None):
    """All requests, sent when their time comes; and how long all took."""
    arrivals, gate = random.Random(seed), asyncio.Semaphore(concurrency or len(prompts))

    async def one(prompt):
        async with gate:
            return await ask(port, prompt, tokens, source)
    begin, sent = time.perf_counter(), []
    for prompt in prompts:
        sent.append(asyncio.create_task(one(prompt)))
        if rate != float("inf"):
            await asyncio.sleep(arrivals.expovariate(rate))
    return await asyncio.gather(*sent), time.perf_counter() - begin


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def summary(measured, prompts, seconds):
    """vLLM's names."""
    good = [each for each in measured if each.status == 200 and each.events]
    said = sum(each.tokens for each in good)
    figures = {"completed": len(good), "failed": len(measured) - len(good), "duration": seconds, "request_throughput": len(good) / seconds,
               "output_throughput": said / seconds,
               "total_token_throughput": (said + sum(map(len, prompts))) / seconds}
    itl = [gap for each in good for gap in each.itl]
    tpot = [(each.events[-1] - each.events[0]) / (each.tokens - 1) for each in good if each.tokens > 1]
    for name, values in (("ttft", [each.ttft for each in good]), ("tpot", tpot), ("itl", itl)):
        figures |= {f"mean_{name}_ms": 1e3 * statistics.fmean(values or [float("nan")])}
        figures |= {f"p{int(100 * share)}_{name}_ms": 1e3 * percentile(values, share) for share in (0.5, 0.9, 0.99)}
    return {name: round(value, 2) for name, value in figures.items()}


class Server:
    def __init__(self, sluice, *arguments):
        self.process = subprocess.Popen([sluice, "serve", "--port", "0", *map(str, arguments)], stderr=subprocess.PIPE, text=True)
        for line in self.process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:(\d+)/v1", line):
                self.port = int(found.group(1))
                return
        sys.exit("the server did not start")

    def processor_s(self):
        """Of the server and its tokenizers so far."""
        ticks = 0
        for process in (self.process.pid, *children(self.process.pid)):
            fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
        return ticks / os.sysconf("SC_CLK_TCK")

    def await_idle(self):
        """Until no sequence runs or waits: those of clients that left are noticed within a step or two."""
        while True:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics") as answer:
                under_way = re.findall(r"^sluice_sequences_(?:running|waiting)(?:\{.*?\})? (\S+)", answer.read().decode(), re.MULTILINE)
            if sum(map(float, under_way)) == 0:
                return
            time.sleep(0.05)

    def close(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.communicate()


def generate(model, prompts, tokens, folder, args):
    """(tokens, seconds without the start, processor seconds) of the generator itself."""
    file = folder / "prompts.jsonl"
    file.write_text("".join(json.dumps({"ids": prompt}) + "\n" for prompt in prompts))
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = run(args.sluice, "generate", *model, "--prompts", file, "--out", folder / "said.jsonl", "--tokens", tokens,
               "--threads", args.threads)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    said = sum(len(json.loads(line)["ids"]) for line in (folder / "said.jsonl").read_text().splitlines())
    found = re.search(r"generating: done in (.*)", done.stderr)
    return said, seconds_of(found.group(1)) if found else 0, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def seconds_of(duration):
    units = {"min": 60, "s": 1, "ms": 1e-3}
    return sum(float(number) * units[unit] for number, unit in re.findall(r"([\d.]+) (min|ms|s)\b", duration))


async def one_by_one(port, prompts, tokens):
    """The TTFT of each, s."""
    return [(await ask(port, prompt, tokens, "127.0.0.1")).ttft for prompt in prompts]


async def keep_busy(port, connections, args):
    """As many connections from another address, without an end. What is answered is thrown away unread: a client who parsed
    it would take the processor that the server needs."""
    async def one(seed):
        source = random.Random(seed)
        while True:
            reader, writer = await asyncio.open_connection("127.0.0.1", port, local_addr=("127.0.0.2", 0))
            writer.write(request_of(prompts_of(1, args.shortest, source.random())[0], args.tokens))
            while await reader.read(1 << 16):
                pass
            writer.close()
    await asyncio.gather(*(one(args.seed + 2 + connection) for connection in range(connections)))


def crowd(port, connections, args):
    asyncio.run(keep_busy(port, connections, args))


def fairness(port, args):
    """One client's TTFT alone, and beside a crowd that keeps 100 connections busy for each of its own. The crowd is a process of
    its own, so that nothing of it delays the clock of the one."""
    own = prompts_of(args.fair_requests, args.shortest, args.seed + 1)  # the same in each round
    alone = asyncio.run(one_by_one(port, own, args.tokens))
    others = multiprocessing.Process(target=crowd, args=(port, 100, args))
    others.start()
    time.sleep(args.warm_s)
    beside = asyncio.run(one_by_one(port, own, args.tokens))
    others.terminate()
    others.join()
    return alone, beside


def spread(values, digits=3):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f} over {len(values)} rounds)"


def markdown(results):
    load = results["load"]
    lines = [f"# Serving under load\n\nCommand: `make bench-serve`, at revision {results['revision']}, {results['hardware']}, load "
             f"{results['load_before']:.1f} before. {results['requests']} requests at {results['request_rate']} a second, prompts of "
             f"{results['prompt_tokens'][0]} to {results['prompt_tokens'][1]} tokens, {results['tokens']} tokens of output each. "
             "The load's rows are those of the round of median throughput.\n",
             "| figure | value |", "| --- | --- |"]
    lines += [f"| {name} | {value} |" for name, value in load.items()]
    lines += [f"| output_throughput over the generator's without HTTP ({statistics.median(results['generator_tokens_per_s']):.0f} tokens/s) | "
              f"{spread(results['throughput_ratios'])} |" if "throughput_ratios" in results else "",
              f"| processor time of a token, ms | {spread(results['served_processor_ms'])} |" if "processor_ratios" in results else "",
              f"| of the generator without HTTP, ms | {spread(results['generator_processor_ms'])} |" if "processor_ratios" in results else "",
              f"| ratio | {spread(results['processor_ratios'])} |" if "processor_ratios" in results else "",
              f"| median TTFT of one client alone, ms | {spread(results['alone_ttft_ms'], 1)} |",
              f"| beside another with 100 times its connections, ms | {spread(results['beside_ttft_ms'], 1)} |",
              f"| ratio | {spread(results['ttft_ratios'], 2)} |"]
    return "\n".join(line for line in lines if line) + "\n"


def one_round(server, prompts, model, folder, args):
    server.await_idle()
    before = server.processor_s()
    measured, seconds = asyncio.run(open_loop(server.port, prompts, args.tokens, args.request_rate, args.seed,
                                              concurrency=args.max_concurrency))
    served = 1e3 * (server.processor_s() - before) / max(1, sum(each.tokens for each in measured))
    found = {"load": summary(measured, prompts, seconds)}
    if args.request_rate == float("inf"):
        start = generate(model, [[1]], 1, folder, args)[2]
        said, seconds, processor = generate(model, prompts, args.tokens, folder, args)
        found["generator_tokens_per_s"] = said / seconds
        found["throughput_ratios"] = found["load"]["output_throughput"] / found["generator_tokens_per_s"]
        found |= {"served_processor_ms": served, "generator_processor_ms": 1e3 * (processor - start) / said}
        found["processor_ratios"] = found["generator_processor_ms"] / served
    alone, beside = (1e3 * statistics.median(seconds) for seconds in fairness(server.port, args))
    return found | {"alone_ttft_ms": alone, "beside_ttft_ms": beside, "ttft_ratios": beside / alone}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sluice", default=str(HERE.parent / "build" / "sluice"))
    parser.add_argument("--requests", type=int, default=128)
    parser.add_argument("--request-rate", type=float, default=float("inf"))
    parser.add_argument("--max-concurrency", type=int)
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--shortest", type=int, default=8)
    parser.add_argument("--fair-requests", type=int, default=15)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-s", type=float, default=5.0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--results", type=Path, help="a page to write beside the JSON that is printed")
    args = parser.parse_args()
    results = {"revision": revision(), "hardware": hardware(), "load_before": os.getloadavg()[0], "requests": args.requests,
               "request_rate": args.request_rate, "tokens": args.tokens}
    prompts = prompts_of(args.requests, args.shortest, args.seed)
    results["prompt_tokens"] = [min(map(len, prompts)), max(map(len, prompts))]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        model = write_model(folder, args.sluice)
        server = Server(args.sluice, *model, "--context-length", 512, "--threads", args.threads)
        try:
            rounds = [one_round(server, prompts, model, folder, args) for _ in range(args.rounds)]
        finally:
            server.close()
        loads = sorted((each.pop("load") for each in rounds), key=lambda load: load["output_throughput"])
        results |= {"load": loads[len(loads) // 2]} | {name: [each[name] for each in rounds] for name in rounds[0]}
    print(json.dumps(results, indent=1))
    if args.results:
        args.results.write_text(markdown(results))


if __name__ == "__main__":
    main()
