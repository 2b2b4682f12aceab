"""Wrong input and full disks: one line that names the value and the way out, the documented exit status (1
failed at run time, 2 wrong input, 3 infeasible), and nothing half written. Prints a table of all cases."""

import ctypes
import json
import os
import re
import resource
import shutil
import struct

from harness import (SLUICE, VOCABULARY, TestCase, committed_steps, environment, free_port, losses, main,
                     make_documents, write_corpus)

RANKS = 2
STRATEGIES = ["2x<1,1,1>"]
LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32, "num_hidden_layers": 4,
         "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 64, "vocab_size": VOCABULARY,
         "rms_norm_eps": 1e-5, "hidden_act": "silu", "tie_word_embeddings": False, "rope_theta": 10000.0,
         "max_position_embeddings": 128, "torch_dtype": "float32"}
# What runs say at their start of data and schedules that fit them badly.
NOTES = re.compile(r"are longer than data\.context_length|the rate only rises|the model was made for")
PROGRESS = re.compile(r"(\[rank 0\] )?(step \d+/\d+ |saved checkpoint after|resuming from|since then changed)")
TABLE = []


def llama_tensors():
    """{name: (dtype, shape)} of the tiny model as Hugging Face stores it."""
    tensors = {"model.embed_tokens.weight": [VOCABULARY, 32], "model.norm.weight": [32],
               "lm_head.weight": [VOCABULARY, 32]}
    for layer in range(4):
        prefix = f"model.layers.{layer}."
        tensors |= {prefix + "input_layernorm.weight": [32], prefix + "post_attention_layernorm.weight": [32],
                    prefix + "self_attn.q_proj.weight": [32, 32], prefix + "self_attn.k_proj.weight": [16, 32],
                    prefix + "self_attn.v_proj.weight": [16, 32], prefix + "self_attn.o_proj.weight": [32, 32],
                    prefix + "mlp.gate_proj.weight": [64, 32], prefix + "mlp.up_proj.weight": [64, 32],
                    prefix + "mlp.down_proj.weight": [32, 64]}
    return {name: ("F32", shape) for name, shape in tensors.items()}


def write_model(folder, config=(), tensors=()):
    """A Hugging Face folder of the tiny model with the given keys and tensors changed; all weights are 0."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(LLAMA | dict(config)))
    header, offset = {}, 0
    for name, (dtype, shape) in (llama_tensors() | dict(tensors)).items():
        size = {"F32": 4, "I64": 8}[dtype]
        for dimension in shape:
            size *= dimension
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + size]}
        offset += size
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + bytes(offset))


class BadInput(TestCase):
    elastic = False
    def refuse(self, case, status, *needles, ranks=RANKS, arguments=(), outcome=None, **changes):
        """Trains under `changes`: it must end with `status` and one line beside those on steps, which matches all
        needles."""
        if outcome is None:
            self.config("run", **{"parallel__strategies": STRATEGIES, "train__steps": 4, **changes})
            outcome = self.finish(self.start_train("run", ranks, *arguments))
        self.assertEqual(outcome.status, status, f"{case}: {outcome}")
        lines = [line for line in outcome.stderr.strip().splitlines() if not PROGRESS.match(line) and not NOTES.search(line)]
        self.assertEqual(len(lines), 1, f"{case}: {outcome}")
        for needle in needles:
            self.assertRegex(lines[0], needle)
        TABLE.append((case, lines[0], status))
        self.assert_nothing_half_written()

    def assert_nothing_half_written(self):
        """No temporary file, no metrics of steps that weren't, no checkpoint without its manifest."""
        half = [str(path) for path in self.directory.rglob("*") if ".part" in path.name]
        self.assertEqual(half, [])


class Corpora(BadInput):
    def corrupt(self, suffix, change):
        path = self.directory / f"corpus.{suffix}"
        path.write_bytes(change(bytearray(path.read_bytes())))

    def test_truncated_index(self):
        self.corrupt("idx", lambda data: data[:-9])
        self.refuse("truncated .idx", 2, r"corpus\.idx has \d+ bytes", "truncated", "rebuild")

    def test_index_shorter_than_its_header(self):
        self.corrupt("idx", lambda data: data[:20])
        self.refuse(".idx of 20 bytes", 2, r"corpus\.idx has 20 bytes", "rebuild")

    def test_wrong_magic(self):
        self.corrupt("idx", lambda data: b"NOTANIDX\0" + data[9:])
        self.refuse("wrong-magic .idx", 2, r"corpus\.idx does not begin with MMIDIDX", "corpus build")

    def test_offsets_beyond_the_tokens(self):
        self.corrupt("bin", lambda data: data[:-2])
        self.refuse("offsets beyond .bin", 2, r"corpus\.bin has \d+", r"sequence \d+", "rebuild")

    def test_no_corpus(self):
        self.refuse("missing corpus", 2, "elsewhere", data__train=[["elsewhere", 1.0]])

    def test_token_outside_the_vocabulary(self):
        documents = make_documents()
        for document in documents:
            document[-1] = 4711
        write_corpus(self.directory / "corpus", documents)
        self.refuse("token ≥ vocabulary", 2, "token 4711", f"vocabulary has {VOCABULARY}", "set the model's vocab")


class Configurations(BadInput):
    def test_unknown_key(self):
        self.refuse("unknown TOML key", 2, r"run\.toml:\d+", "train.stepz", "did you mean 'steps'", train__stepz=4)

    def test_unknown_setting(self):
        self.refuse("unknown --set key", 2, "--set: unknown", "train.stepz", "did you mean 'steps'", arguments=["--set", "train.stepz=4"])

    def test_malformed_file(self):
        self.config("run")
        with open(self.directory / "run.toml", "a", encoding="utf-8") as file:
            file.write("[train\n")
        self.refuse("TOML that isn't", 2, r"run\.toml:\d+", outcome=self.finish(self.start_train("run", RANKS)))

    def test_no_configuration(self):
        self.refuse("missing --config file", 2, "absent.toml", outcome=self.finish(self.start_train("absent", RANKS)))

    def test_more_ranks_than_there_are(self):
        self.refuse("strategy with more ranks", 2, re.escape("4x<1,1,1>"), "4 ranks", "2",
                    parallel__strategies=["4x<1,1,1>"])

    def test_malformed_strategy(self):
        self.refuse("strategy that isn't", 2, "<2,1>", parallel__strategies=["<2,1>"])

    def test_heads_that_tp_does_not_divide(self):
        self.refuse("TP not dividing heads", 2, "tp 3", "4", ranks=3, parallel__strategies=["<3,1,1>"])

    def test_more_stages_than_layers(self):
        self.refuse("more stages than layers", 2, "5 stages", "4 layers", ranks=5, parallel__strategies=["<1,5,1>"])

    def test_more_lanes_than_ranks(self):
        self.refuse("more lanes than ranks", 2, re.escape("<1,1,3>"), "3 ranks", "2",
                    parallel__strategies=["<1,1,3>"])

    def test_context_of_one_token(self):
        self.refuse("context shorter than 2", 2, r"data\.context_length is 1", "2", data__context_length=1)

    def test_sequence_that_no_strategy_holds(self):
        self.refuse("sequence longer than any strategy holds", 3, r"\d+ tokens", "lower the context length, or use devices with more memory",
                    memory__device_gib=0.0021, memory__margin_gib=0.0)

    def test_margin_above_the_memory(self):
        self.refuse("margin above the memory", 3, "margin", "lower the margin",
                    memory__device_gib=0.5, memory__margin_gib=0.6)

    def test_host_too_small_for_what_is_offloaded(self):
        self.refuse("host memory below the offload asked for", 3, r"offloading a sequence of \d+ tokens takes",
                    "raise memory.host_gib, lower memory.offload", memory__offload=1.0, memory__recompute="none",
                    memory__host_gib=0.00001)

    def test_index_of_a_strategy_that_is_not_there(self):
        self.refuse("parallel.select out of range", 2, "parallel.select is 7", "1", parallel__select=7)

    def test_calibration_of_another_model(self):
        self.train_once()
        self.refuse("calibration of another model", 2, r"calibration\.json", "another model", "auto",
                    model__hidden=64, parallel__calibration="done/calibration.json")

    def train_once(self):
        self.config("done", train__steps=1, parallel__strategies=STRATEGIES)
        self.train("done", RANKS)


class Checkpoints(BadInput):
    def setUp(self):
        super().setUp()
        run = self.configure()
        shutil.copytree(self.kept(self.train_two_steps), run)
        self.last = run / "checkpoints" / "step-2"

    def configure(self):
        return self.config("run", train__steps=2, checkpoint__every=1, parallel__strategies=STRATEGIES)

    def train_two_steps(self):
        self.train("run", RANKS)
        return self.directory / "run"

    def corrupt(self, step):
        """Flips a bit of a rank's file."""
        path = self.last.parent / f"step-{step}" / "rank-0001.safetensors"
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 1
        path.write_bytes(data)

    def test_corrupt_file(self):
        self.corrupt(2)
        self.refuse("corrupt checkpoint", 2, r"rank-0001\.safetensors has checksum", "damaged",
                    arguments=["--resume", "run/checkpoints/step-2"], checkpoint__every=1)

    def test_missing_file(self):
        (self.last / "rank-0001.safetensors").unlink()
        self.refuse("checkpoint without one file", 2, r"rank-0001\.safetensors is missing", "damaged",
                    arguments=["--resume", "run/checkpoints/step-2"], checkpoint__every=1)

    def test_manifest_that_is_no_json(self):
        (self.last / "manifest.json").write_text('{"schema": "sluice.checkpoint/2",')
        self.refuse("corrupt manifest", 2, r"manifest\.json:\d+:\d+ is not JSON",
                    arguments=["--resume", "run/checkpoints/step-2"], checkpoint__every=1)

    def test_damaged_ones_are_passed_over(self):
        expected = losses(self.directory / "run")
        for damage in (lambda: self.corrupt(2), lambda: (self.last / "rank-0000.safetensors").unlink(),
                       lambda: (self.last / "manifest.json").write_text("{")):
            damage()
            outcome = self.train("run", RANKS, "--resume", "auto")
            self.assertIn("step-2 is passed over: ", outcome.stderr)
            self.assertRegex(outcome.stderr, r"resuming from \S+step-1 after 1 step")
            self.assertEqual(committed_steps(self.directory / "run"), [1, 2])
            self.assertEqual(losses(self.directory / "run"), expected)

    def test_all_of_them_damaged(self):
        before = (self.directory / "run" / "metrics.jsonl").read_bytes()
        self.corrupt(1)
        self.corrupt(2)
        outcome = self.finish(self.start_train("run", RANKS, "--resume", "auto"))
        self.assertEqual(outcome.status, 2, str(outcome))
        self.assertIn("step-2 is passed over: ", outcome.stderr)
        self.assertRegex(outcome.stderr, r"step-1/rank-0001\.safetensors has checksum")
        self.assertEqual((self.directory / "run" / "metrics.jsonl").read_bytes(), before)

    def test_another_runs_checkpoint_does_not_write_over_this_run(self):
        shutil.copytree(self.last, self.directory / "imported" / "step-2")
        self.refuse("another run's checkpoint in a used log.dir", 2, "run/checkpoints holds checkpoints",
                    "imported/step-2 is none of", "set another log.dir", arguments=["--resume", "imported"])
        self.train("run", RANKS, "--resume", "run/checkpoints/step-1")  # this run, gone back

    def test_other_tokens_of_equal_lengths(self):
        documents = make_documents()
        documents[5][0] ^= 1
        write_corpus(self.directory / "corpus", documents)
        self.refuse("corpus with another token", 2, "corpus corpus is not the one that", "other tokens",
                    arguments=["--resume", "auto"], train__steps=3)

    def test_what_changed_is_said(self):
        self.config("run", train__steps=3, checkpoint__every=1, parallel__strategies=["<1,1,1> + <1,1,1>"],
                    optimizer__lr=2e-2, optimizer__decay="linear", data__tokens_per_step=600)
        outcome = self.train("run", RANKS, "--resume", "auto")
        changed = [line.split("since then changed: ")[1] for line in outcome.stderr.splitlines()
                   if "since then changed" in line]
        self.assertEqual(changed, ["data.tokens_per_step is 600, was 512", 'optimizer.decay is "linear", was "cosine"',
                                   "optimizer.lr is 0.02, was 0.01", "train.steps is 3, was 2"])

    def test_a_manifest_of_the_first_version(self):
        path = self.last / "manifest.json"
        manifest = json.loads(path.read_text())
        for key in ("hash", "corpora", "companions"):
            del manifest[key]
        path.write_text(json.dumps(manifest | {"schema": "sluice.checkpoint/1"}))
        self.config("run", train__steps=3, checkpoint__every=1, parallel__strategies=STRATEGIES)
        self.assertIn("its manifest has no hash", self.train("run", RANKS, "--resume", "auto").stderr)

    def test_half_written_by_name(self):
        (self.last / "manifest.json").unlink()
        self.refuse("half-written checkpoint by name", 2, "step-2", "no committed checkpoint", "name a",
                    arguments=["--resume", "run/checkpoints/step-2"], checkpoint__every=1)

    def test_half_written_is_passed_over(self):
        (self.last / "manifest.json").unlink()
        self.train("run", RANKS, "--resume", "auto")
        self.assertEqual(committed_steps(self.directory / "run"), [1, 2])

    def test_other_model(self):
        self.refuse("checkpoint of another model", 2, "hidden 32 but the run has 64", "model",
                    arguments=["--resume", "auto"], model__hidden=64)

    def test_other_type(self):
        self.refuse("checkpoint of another type", 2, "float32", "float64", "train.dtype",
                    arguments=["--resume", "auto"], train__dtype="float64")

    def test_nothing_there(self):
        self.refuse("--resume of an empty place", 2, "nowhere", "name a", arguments=["--resume", "nowhere"])


class Data(BadInput):
    def test_mask_without_targets(self):
        (self.directory / "corpus.mask").write_bytes(bytes(sum(map(len, make_documents()))))
        self.refuse("mask of zeros", 2, r"corpus\.mask is 0 for every token", "remove the file")

    def test_steps_without_targets_are_said(self):
        """Only the last document counts: most steps meet none of its tokens."""
        documents = make_documents()
        mask = bytearray(sum(map(len, documents)))
        mask[-len(documents[-1]):] = bytes([1]) * len(documents[-1])
        (self.directory / "corpus.mask").write_bytes(mask)
        self.config("run", parallel__strategies=STRATEGIES, train__steps=3)
        self.assertIn("has no token that counts", self.train("run", RANKS).stderr)

    def test_batch_of_millions_of_sequences(self):
        self.refuse("tokens_per_step near 2^31", 2, "data.tokens_per_step is 2147483647", "at most",
                    arguments=["--dry-run"], data__tokens_per_step=2**31 - 1)
        (self.directory / "lengths.txt").write_text("17\n900\n")
        command = ["plan", "--gpus", "2", "--model", "llama-7b", "--strategies", "2x<1,1,1>", "--lengths", "lengths.txt",
                   "--tokens-per-step"]
        outcome = self.finish(self.start([os.path.abspath(SLUICE), *command, str(2**62)]))
        self.refuse("--tokens-per-step near 2^62", 2, "tokens_per_step is 4611686018427387904", outcome=outcome)


class Models(BadInput):
    def refuse_model(self, case, *needles, config=(), tensors=()):
        write_model(self.directory / "model", config, tensors)
        changes = {"parallel__strategies": STRATEGIES, "train__steps": 1}
        self.write_hf_config(changes)
        self.refuse(case, 2, *needles, outcome=self.finish(self.start_train("run", RANKS)))

    def write_hf_config(self, changes):
        self.config("run", **changes)
        path = self.directory / "run.toml"
        path.write_text(re.sub(r"(?s)\[model\].*?\[data\]", '[model]\nhf = "model"\n[data]', path.read_text()))

    def test_a_good_model_trains(self):
        write_model(self.directory / "model")
        self.write_hf_config({"parallel__strategies": STRATEGIES, "train__steps": 1})
        self.train("run", RANKS)

    def test_wrong_shape(self):
        self.refuse_model("safetensors of wrong shape", "model.layers.2.mlp.up_proj.weight", "64, 32",
                          tensors={"model.layers.2.mlp.up_proj.weight": ("F32", [32, 64])})

    def test_wrong_type(self):
        self.refuse_model("safetensors of wrong dtype", "model.norm.weight", "I64",
                          tensors={"model.norm.weight": ("I64", [32])})

    def test_other_architecture(self):
        self.refuse_model("config.json of another architecture", "gpt2", "llama",
                          config={"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2"})


class RunDirectories(BadInput):
    def test_under_a_file(self):
        (self.directory / "file").write_text("")
        self.refuse("run directory under a file", 1, "file/run", "Not a directory", log__dir="file/run")

    def test_unwritable(self):
        self.refuse("unwritable run directory", 1, "/proc/run", "choose", log__dir="/proc/run")

    def test_under_a_file_for_ranks_started_by_hand(self):
        (self.directory / "file").write_text("")
        self.config("run", parallel__strategies=STRATEGIES, log__dir="file/run")
        self.refuse_ranks_by_hand("run directory under a file, no launcher", 1, "file/run")

    def test_unknown_key_for_ranks_started_by_hand(self):
        self.config("run", train__stepz=3)
        self.refuse_ranks_by_hand("unknown TOML key, no launcher", 2, "train.stepz")

    def refuse_ranks_by_hand(self, case, status, *needles):
        """Each rank ends with `status`; one of them says why."""
        port = free_port()
        outcomes = [self.finish(process) for process in
                    [self.start_train("run", 0, env=self.rank_environment(rank, port)) for rank in range(RANKS)]]
        self.assertEqual([outcome.status for outcome in outcomes], [status] * RANKS, "\n".join(map(str, outcomes)))
        outcomes[0].stderr += outcomes[1].stderr
        self.refuse(case, status, *needles, outcome=outcomes[0])

    @staticmethod
    def rank_environment(rank, port):
        return environment(OMPI_COMM_WORLD_RANK=rank, OMPI_COMM_WORLD_SIZE=RANKS, OMPI_COMM_WORLD_LOCAL_RANK=rank,
                           OMPI_COMM_WORLD_LOCAL_SIZE=RANKS, MASTER_PORT=port)

    def test_missing_rank(self):
        self.config("run", parallel__strategies=STRATEGIES, train__join_timeout_s=1)
        for rank in range(RANKS):
            outcome = self.finish(self.start_train("run", 0, env=self.rank_environment(rank, free_port())))
            self.refuse(f"rank {1 - rank} missing at start-up", 1, f"rank {1 - rank} of 2 did not join within 1",
                        outcome=outcome)

    def test_full(self):
        """A file system of 1 MiB where mounting is allowed."""
        run = self.directory / "run"
        run.mkdir()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.mount(b"none", os.fsencode(run), b"tmpfs", 0, b"size=1m") != 0:
            self.skipTest("mounting is not allowed here")
        self.addCleanup(libc.umount2, os.fsencode(run), 2)
        self.refuse("full run directory", 1, "No space left on device", "free space",
                    train__steps=50, checkpoint__every=1, checkpoint__keep=50, log__tensorboard=True)
        self.assert_resumes_with_room(run)

    def assert_resumes_with_room(self, run):
        """What was committed before the disk was full is whole."""
        last = committed_steps(run)[-1]
        self.assertGreater(last, 0)
        shutil.copytree(run, self.directory / "roomy")
        self.config("roomy", parallel__strategies=STRATEGIES, train__steps=50, checkpoint__every=50)
        self.train("roomy", RANKS, "--resume", "auto")
        self.assertEqual(sorted(losses(self.directory / "roomy")), list(range(50)))

    def test_files_that_may_not_grow(self):
        """Each file at most 64 KiB: the first checkpoint fails."""
        self.config("run", parallel__strategies=STRATEGIES, train__steps=4, checkpoint__every=2)
        limit = 65536
        process = self.start_train("run", RANKS,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit)))
        self.refuse("checkpoint above the file size limit", 1, r"rank-000\d\.safetensors", "File too large",
                    outcome=self.finish(process))
        self.assertEqual(committed_steps(self.directory / "run"), [])


def tearDownModule():
    print("\ncase | message | exit status")
    for case, message, status in sorted(TABLE):
        print(f"{case} | {message} | {status}")


if __name__ == "__main__":
    main()
