"""Pages that are scripts are read as such, and the first day's page is one."""

import pathlib
import unittest

import page

DAY = pathlib.Path(__file__).resolve().parents[2] / "docs/first_day.md"
TEXT = '''intro

## 1. Files

```toml title="a/run.toml"
x = 1
```

<!--needs: test -e nothing-->
```
echo one \\
  two
```

```python
shown = "not run"
```

## 2. Rest

```
cat a/run.toml
```
'''


class Pages(unittest.TestCase):
    def test_files_and_commands_in_order(self):
        parts = list(page.parts(TEXT))
        self.assertEqual([(part.section, part.title, part.is_commands) for part in parts],
                         [("1. Files", "a/run.toml", False), ("1. Files", None, True), ("2. Rest", None, True)])
        self.assertEqual(parts[0].text, "x = 1\n")
        self.assertEqual([part.needs for part in parts], [None, "test -e nothing", None])

    def test_a_fence_with_a_language_is_shown_alone(self):
        self.assertFalse(any("not run" in part.text for part in page.parts(TEXT)))

    def test_a_file_that_nothing_uses_is_found(self):
        self.assertEqual(list(page.lone_files(TEXT)), [])
        self.assertEqual(list(page.lone_files(TEXT.replace("cat a/run.toml", "ls"))), ["a/run.toml"])

    def test_the_first_day_has_all_its_parts(self):
        text = DAY.read_text()
        self.assertEqual(list(page.lone_files(text)), [])
        commands = "\n".join(part.text for part in page.parts(text) if part.is_commands)
        for step in ("doctor", "corpus build", "propose --gpus 64", "models/smollm2", "algorithm=grpo", "models/experts", "--nnodes 2",
                     "kill -9", "python3 balance.py", "serve --model"):
            self.assertIn(step, commands)


if __name__ == "__main__":
    unittest.main()
