"""sluice serve as clients know OpenAI's API: every field of every kind, calls of tools, penalties, usage, models by name."""

import json
import unittest

from commands import CommandTest, call
from serve_bounds_test import endless_model
from serve_test import Server, events
from small_models import byte_tokenizer, chain, chained_model

USER = [{"role": "user", "content": "a"}]
# What OpenAI's clients and LangChain send though nobody asked for it.
NEUTRAL = {"n": 1, "stream": False, "stop": None, "logprobs": None, "presence_penalty": 0, "frequency_penalty": 0.0, "logit_bias": {},
           "user": "somebody", "seed": None, "top_p": 1, "response_format": {"type": "text"}, "stream_options": None}
NEUTRAL_CHAT = NEUTRAL | {"logprobs": False, "tools": None, "tool_choice": "none", "parallel_tool_calls": True, "modalities": ["text"],
                          "store": False, "metadata": {"a": "b"}, "service_tier": "auto", "functions": [], "function_call": "none",
                          "top_logprobs": None, "verbosity": "medium", "prompt_cache_key": "x", "safety_identifier": "y",
                          "prediction": None, "audio": None, "web_search_options": None}
CALL = '<tool_call>\n{"name": "look", "arguments": {"city": "Oslo"}}\n</tool_call>'
TOOLS_TEMPLATE = ("{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}{# <tool_call> #}"
                  "{% for m in messages %}{{ m.role }}:{{ m.content or '' }}{% for c in m.tool_calls or [] %}{{ c.function.name }}{{ c.function.arguments | tojson }}"
                  "{% endfor %};{% endfor %}")
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}


class Clients(CommandTest):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.server = Server("--model", endless_model(cls.folder / "model"), "--name", "toy", "--context-length", 512)
        cls.addClassCleanup(cls.server.close)

    def refusal(self, path, status=400, **body):
        body = ({"messages": USER} if path == "chat/completions" else {"prompt": "a"}) | body
        got, content = self.server.call("POST", f"/v1/{path}", {"max_tokens": 2, "temperature": 0} | body)
        self.assertEqual(got, status, content)
        return json.loads(content)["error"]

    def test_neutral_values_are_taken(self):
        self.server.ask("completions", model="toy", prompt="a", max_tokens=1, best_of=1, suffix=None, echo=False, **NEUTRAL)
        self.server.ask("chat/completions", model="toy", messages=USER, max_tokens=1, **NEUTRAL_CHAT)

    def test_fields_of_another_kind_are_named(self):
        for path, fields in (("completions", {"logprobs": ["5", 1.5, True, {"a": 1}, -1, 1000], "echo": ["yes", 1], "prompt": [5, {"a": 1}],
                                              "messages": [USER], "top_logprobs": [3], "best_of": [2], "suffix": ["b"]}),
                             ("chat/completions", {"logprobs": ["true", 1], "top_logprobs": [3, "many", [1]], "echo": [True], "prompt": ["b"],
                                                   "messages": ["a", [], {"a": 1}], "max_tokens": [0, 1.5], "tool_choice": ["required", 5],
                                                   "tools": ["x", [5], [{"type": "function"}]], "modalities": [["audio"]]})):
            both = {"max_tokens": ["5", -1, [1]], "temperature": ["hot", True, -1], "top_p": [2, "a"], "top_k": [-2, 0.5], "n": [0, 1000, "2"],
                    "stop": [5, [5], {"a": 1}, [""]], "seed": ["a", 0.5], "stream": ["true", 1], "stream_options": [True, {"other": 1}],
                    "logit_bias": [[1], {"a": 1}, {"300": 1}, {"5": "x"}, {"5": 101}], "presence_penalty": [3, "a"],
                    "frequency_penalty": [-3], "repetition_penalty": [0], "user": [5], "model": [5], "unheard_of": [1],
                    "response_format": [{"type": "json_object"}, {"type": "json_schema", "json_schema": {"name": "a", "schema": {}}}]}
            for field, values in (both | fields).items():
                for value in values:
                    self.assertIn(field, self.refusal(path, **{field: value})["message"], (path, field, value))
        self.assertEqual(self.refusal("chat/completions", logprobs=True, top_logprobs=1000)["param"], "top_logprobs")

    def test_models(self):
        listed = json.loads(self.server.call("GET", "/v1/models")[1])["data"][0]
        status, content = self.server.call("GET", "/v1/models/toy")
        self.assertEqual((status, json.loads(content)), (200, listed))
        self.assertLessEqual({"id", "object", "created", "owned_by"}, set(listed))
        for status, content in (self.server.call("GET", "/v1/models/other"),
                                self.server.call("POST", "/v1/completions", {"model": "gpt-4o", "prompt": "a"})):
            error = json.loads(content)["error"]
            self.assertEqual((status, error["code"]), (404, "model_not_found"))
            self.assertIn("'toy'", error["message"])

    def test_answers_have_what_the_schema_requires(self):
        answer = self.server.ask("chat/completions", messages=USER, max_tokens=2, logprobs=True, top_logprobs=2)
        choice = answer["choices"][0]
        self.assertLessEqual({"id", "object", "created", "model", "choices", "usage", "system_fingerprint"}, set(answer))
        self.assertIsNone(choice["message"]["refusal"])
        self.assertIsNone(choice["logprobs"]["refusal"])
        self.assertEqual(len(choice["logprobs"]["content"][0]["top_logprobs"]), 2)
        error = self.refusal("completions", temperature=-1)
        self.assertEqual(set(error), {"message", "type", "param", "code"})

    def test_usage_of_streams(self):
        for usage in (True, False):
            body = {"messages": USER, "max_tokens": 5, "stream": True, "stream_options": {"include_usage": usage}}
            _, content = self.server.call("POST", "/v1/chat/completions", body)
            *chunks, last = map(json.loads, events(content)[:-1])
            self.assertEqual([chunk.get("usage", 0) for chunk in chunks], [None if usage else 0] * len(chunks))
            self.assertEqual(last["choices"] == [], usage)
            if usage:
                self.assertEqual(last["usage"]["completion_tokens"], 5)
        self.assertIn("stream", self.refusal("completions", stream_options={"include_usage": True})["message"])

    def test_bias_and_penalties(self):
        def said(**more):
            return self.server.ask("completions", prompt="abc", max_tokens=4, temperature=0, **more)["choices"][0]["text"]
        self.assertEqual(said(), "defg")
        self.assertEqual(said(logit_bias={str(ord("z")): 100})[:3], "zzz")
        self.assertNotIn("e", said(logit_bias={str(ord("e")): -100}))
        self.assertEqual(said(stop_token_ids=[ord("f")]), "de")
        biased = {str(ord("z")): 41}  # one more than the logit of what comes else
        self.assertEqual(said(logit_bias=biased), "zzzz")
        for penalty in ("frequency_penalty", "presence_penalty"):
            self.assertEqual(said(logit_bias=biased, **{penalty: 2})[:2], "z{")

    def test_a_prompt_that_fills_the_context_is_scored(self):
        for length, status in ((511, 200), (512, 200), (513, 400)):
            got, content = self.server.call("POST", "/v1/completions", {"prompt": [97] * length, "max_tokens": 0, "echo": True, "logprobs": 1})
            self.assertEqual(got, status, content)

    def test_tools_are_refused_where_no_call_is_known(self):
        self.assertIn("--tool-format", self.refusal("chat/completions", tools=[TOOL])["message"])
        self.assertEqual(call("serve", "--model", self.folder / "model", "--tool-format", "nobody").returncode, 2)


class Tools(CommandTest):
    """A model that says a call, and the loop that clients run with it."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        model = cls.folder / "model"
        byte_tokenizer(model, ("<|im_start|>", "<|im_end|>", "So.", CALL), {"eos_token": "<|im_end|>", "chat_template": TOOLS_TEMPLATE})
        chained_model(model, 260, chain([ord(";"), 258, 259], 257), 257, max_position_embeddings=1024)
        cls.server = Server("--model", model)
        cls.addClassCleanup(cls.server.close)

    def ask(self, **more):
        return self.server.ask("chat/completions", messages=USER, temperature=0, max_tokens=9, **more)["choices"][0]

    def test_a_call_and_its_result(self):
        choice = self.ask(tools=[TOOL])
        message = choice["message"]
        self.assertEqual((choice["finish_reason"], message["content"]), ("tool_calls", "So."))
        (made,) = message["tool_calls"]
        self.assertEqual((made["type"], made["function"]), ("function", {"name": "look", "arguments": '{"city":"Oslo"}'}))
        answer = self.server.ask("chat/completions", temperature=0, max_tokens=9, tools=[TOOL], messages=[
            *USER, message, {"role": "tool", "tool_call_id": made["id"], "content": "sunny"}])
        self.assertGreater(answer["usage"]["prompt_tokens"], len("sunny") + len('{"city":"Oslo"}'))

    def test_without_tools_a_call_is_text(self):
        for more in ({}, {"tools": []}, {"tools": [TOOL], "tool_choice": "none"}):
            choice = self.ask(**more)
            self.assertEqual((choice["finish_reason"], choice["message"]["content"]), ("stop", "So." + CALL))
            self.assertNotIn("tool_calls", choice["message"])

    def test_a_call_in_a_stream(self):
        body = {"messages": USER, "temperature": 0, "max_tokens": 9, "tools": [TOOL], "stream": True}
        _, content = self.server.call("POST", "/v1/chat/completions", body)
        choices = [json.loads(event)["choices"][0] for event in events(content)[:-1]]
        self.assertEqual("".join(choice["delta"].get("content") or "" for choice in choices), "So.")
        (calls,) = [choice["delta"]["tool_calls"] for choice in choices if "tool_calls" in choice["delta"]]
        self.assertEqual((calls[0]["index"], calls[0]["function"]["name"], choices[-1]["finish_reason"]), (0, "look", "tool_calls"))


if __name__ == "__main__":
    unittest.main()
