"""A small student that learns a teacher's distributions beside one that learns the same documents' tokens, at equal steps
(docs/distillation.md).

For each seed a larger model imitates many lessons of examples/rl/sorting.py and is exported. A smaller one then trains on a few
of them: on their tokens (fine-tuning), and on the teacher's distributions by each divergence, over the lessons or in every
second step over its own responses. Told is the cross-entropy of lessons that nobody trained on.

    make distil       one seed, fine-tuning and forward KL
    bench/distillation.py --out bench/results/distillation.json       three seeds
"""

import json
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from seeded import arguments_of

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "examples" / "distillation"
VARIANTS = {
    "fine-tuning": {"teacher.hf": '""'},
    "forward_kl": {},
    "forward_kl and the lessons' own loss": {"teacher.alpha": 0.5},
    "reverse_kl": {"teacher.divergence": '"reverse_kl"'},
    "jsd": {"teacher.divergence": '"jsd"'},
    "jsd, half on-policy": {"teacher.divergence": '"jsd"', "teacher.lmbda": 0.5, "rl.max_completion_length": 24},
}
# Lessons of the student's, of those that nobody trains on, and how many there are.
FEW, UNSEEN = 400, 400


def run(command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")


class Seed:
    """One seed's lessons and teacher."""

    def __init__(self, args, folder, seed):
        self.args, self.folder, self.seed = args, folder, seed
        run([sys.executable, ROOT / "examples" / "rl" / "sorting.py", folder, seed])
        lessons = (folder / "lessons.jsonl").read_text().splitlines(keepends=True)
        for name, own in (("many", lessons[:-UNSEEN]), ("few", lessons[:FEW]), ("unseen", lessons[-UNSEEN:])):
            (folder / f"{name}.jsonl").write_text("".join(own))
            run([args.sluice, "corpus", "build", folder / f"{name}.jsonl", "--chat", "--tokenizer", folder / "tokenizer.json",
                 "--out", folder / name])
        self.teacher = self.train("teacher.toml", "many", "teacher", {})[-1]
        run([args.sluice, "export", folder / "teacher", "--out", folder / "taught"])

    def train(self, config, lessons, name, settings):
        """The evaluations' losses."""
        settings = {"data.train": f'[["{self.folder}/{lessons}/corpus", 1.0]]', "data.validation_fraction": 0,
                    "data.validation": f'["{self.folder}/unseen/corpus"]', "log.dir": f'"{self.folder}/{name}"',
                    "data.seed": self.seed, **settings}
        command = [self.args.sluice, "train", "--config", EXAMPLES / config, "--nproc", self.args.nproc]
        for key, value in settings.items():
            command += ["--set", f"{key}={value}"]
        run(command, cwd=ROOT)
        lines = [json.loads(line) for line in (self.folder / name / "metrics.jsonl").read_text().splitlines()]
        return [line["validation_loss"] for line in lines if "validation_loss" in line]

    def student(self, variant):
        name = re.sub(r"\W+", "_", variant)
        return self.train("student.toml", "few", name, {"teacher.hf": f'"{self.folder}/taught"', **VARIANTS[variant]})


def spread(values):
    return f"{statistics.mean(values):.4f} ({min(values):.4f} to {max(values):.4f})"


def table(results, teachers):
    steps = [50, 100, 150, 200]
    lines = [f"| | {' | '.join(f'{step} steps' for step in steps)} |", f"| --- |{' --- |' * len(steps)}",
             f"| the teacher | | | | {spread(teachers)} |"]
    for name, seeds in results.items():
        lines.append(f"| {name} | {' | '.join(spread([losses[i] for losses in seeds]) for i in range(len(steps)))} |")
    return "\n".join(lines)


def main():
    args = arguments_of(VARIANTS)
    results, teachers = {name: [] for name in args.only}, []
    for seed in range(1, args.seeds + 1):
        with tempfile.TemporaryDirectory() as folder:
            taught = Seed(args, Path(folder), seed)
            teachers.append(taught.teacher)
            print(f"seed {seed}: the teacher: {taught.teacher:.4f} nats a token of lessons that nobody trained on", flush=True)
            for name in args.only:
                results[name].append(taught.student(name))
                print(f"seed {seed}: {name}: {', '.join(f'{loss:.4f}' for loss in results[name][-1])}", flush=True)
    print("\n" + table(results, teachers))
    if "fine-tuning" in results:
        for name in [name for name in results if name != "fine-tuning"]:
            gains = [own[-1] < other[-1] for own, other in zip(results[name], results["fine-tuning"], strict=True)]
            print(f"{name} ends below fine-tuning in {sum(gains)} of {len(gains)} seeds")
    if args.out:
        sys.path.insert(0, str(ROOT / "tests" / "integration"))
        from harness import hardware, recorded_revision
        path = Path(args.out)
        path.write_text(json.dumps({"revision": recorded_revision(), "hardware": hardware(), "teachers": teachers,
                                    "students": results}, indent=1) + "\n")
        path.with_suffix(".md").write_text(
            "# Distillation\n\nNats a token of lessons that nobody trained on, after so many steps; mean and range of "
            f"{args.seeds} seeds. The teacher learnt from 19,600 lessons, students from {FEW} of them ([docs/distillation.md](../../docs/distillation.md)).\n\n{table(results, teachers)}\n\n"
            f"Command: `bench/distillation.py --seeds {args.seeds} --out {args.out}`, at revision {recorded_revision()}, "
            f"{hardware()}.\n")


if __name__ == "__main__":
    main()
