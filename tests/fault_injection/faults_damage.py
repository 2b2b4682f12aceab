"""Damage at rest: files of a run that was killed in its middle are changed before it is resumed. Checkpoints after 2
and 4 steps are there."""

import json
import shutil

import check
from fault import Group
from harness import committed_steps, make_documents, write_corpus
from job import Broken
from fault_injection import LONGEST

FAULTS = Group("damage")
NEWEST, OLDER = "checkpoints/step-4", "checkpoints/step-2"
PASSED_OVER = "takes the older checkpoint and names the damaged one"
REFUSED = "ends 2 with one line"


def flip(data, chance):
    """One bit is other than it was."""
    data = bytearray(data)
    place = chance.randrange(len(data))
    data[place] ^= 1 << chance.randrange(8)
    return bytes(data)


def cut(data, chance):
    return data[:chance.randrange(1, len(data))]


def cut_by_one(data, _chance):
    return data[:-1]


def empty(_data, _chance):
    return b""


def lengthen(data, _chance):
    return data + b"\0"


def garbage(data, chance):
    return bytes(chance.randrange(256) for _ in range(len(data)))


def zeros(data, _chance):
    return bytes(len(data))


def damaged_checkpoint(what, damage):
    """Damages the newest checkpoint: the older one is taken and it is said which was passed over."""
    def strike(trial):
        trial.take_stopped_run()
        damage(trial, trial.run / NEWEST)
        trial.committed = 0  # the newest may be removed
        job = trial.start()
        endings = trial.ends(job, 0, says="step-4")
        trial.says(endings, r"step 3/")
        trial.complete()
    FAULTS.add(f"the newest checkpoint: {what}", ("rest",), PASSED_OVER, strike)


def changing(name, change):
    """A damage that changes the bytes of one file."""
    def damage(trial, folder):
        path = folder / name
        path.write_bytes(change(path.read_bytes(), trial.chance))
    return damage


def other_value(keys, value):
    """A damage of manifest.json that a person might do: one value is another."""
    def damage(_trial, folder):
        path = folder / "manifest.json"
        manifest = json.loads(path.read_text())
        place = manifest
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = value
        path.write_text(json.dumps(manifest))
    return damage


def swap_slices(_trial, folder):
    first, second, aside = (folder / name for name in ("rank-0000.safetensors", "rank-0001.safetensors", "aside"))
    first.rename(aside)
    second.rename(first)
    aside.rename(second)


def slice_of_older(_trial, folder):
    shutil.copyfile(folder.parent / "step-2" / "rank-0001.safetensors", folder / "rank-0001.safetensors")


for label, change in (("one bit of the manifest flipped", flip), ("the manifest cut off", cut),
                      ("the manifest empty", empty), ("the manifest zeros", zeros),
                      ("the manifest garbage", garbage)):
    damaged_checkpoint(label, changing("manifest.json", change))
for label, change in (("one bit of a slice flipped", flip), ("a slice cut off", cut), ("a slice shorter by a byte",
                      cut_by_one), ("a slice longer by a byte", lengthen), ("a slice empty", empty),
                      ("a slice zeros", zeros)):
    damaged_checkpoint(label, changing("rank-0001.safetensors", change))
damaged_checkpoint("a slice missing", lambda trial, folder: (folder / "rank-0002.safetensors").unlink())
damaged_checkpoint("a slice is a folder", lambda trial, folder: ((folder / "rank-0002.safetensors").unlink(),
                                                                 (folder / "rank-0002.safetensors").mkdir()))
damaged_checkpoint("two slices exchanged", swap_slices)
damaged_checkpoint("a slice of an older one", slice_of_older)
damaged_checkpoint("its step is another", other_value(["step"], 5))
damaged_checkpoint("its world size is 0", other_value(["world_size"], 0))
damaged_checkpoint("its world size is huge", other_value(["world_size"], 10**9))
damaged_checkpoint("its step is negative", other_value(["step"], -4))
damaged_checkpoint("its sampler is a text", other_value(["sampler"], "none"))
damaged_checkpoint("its configuration is a number", other_value(["config"], 7))


@FAULTS("both checkpoints damaged", ("rest",), REFUSED + ", never begins anew in silence")
def both_damaged(trial):
    trial.take_stopped_run()
    aside = trial.directory / "aside"
    shutil.copytree(trial.run, aside)
    for folder in (NEWEST, OLDER):
        changing("rank-0000.safetensors", flip)(trial, trial.run / folder)
    trial.ends(trial.start(), 2, 1, says="damaged|checksum")
    if committed_steps(trial.run) != [2, 4]:
        raise Broken("checkpoints were removed")
    shutil.rmtree(trial.run)
    shutil.copytree(aside, trial.run)


@FAULTS("the newest checkpoint: the manifest missing", ("rest",), "takes the older checkpoint")
def manifest_missing(trial):
    trial.take_stopped_run()
    trial.committed = 0
    (trial.run / NEWEST / "manifest.json").unlink()
    trial.resume()


def at_rest(name, wanted, change, says=None):
    """Changes a stopped run in a way that does not hinder its continuation."""
    def strike(trial):
        trial.take_stopped_run()
        change(trial)
        trial.resume(says=says)
    FAULTS.add(name, ("rest",), wanted, strike)


def write(name, content):
    def change(trial):
        path = trial.run / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return change


GOES_ON = "goes on"
at_rest("an empty folder named as a later checkpoint", GOES_ON,
        lambda trial: (trial.run / "checkpoints" / "step-8").mkdir())
at_rest("a half-written later checkpoint", GOES_ON, write("checkpoints/step-6/rank-0000.safetensors", b"half"))
at_rest("files that a killed process was writing", "goes on and removes them", lambda trial: [
    write(name, b"half")(trial) for name in ("config.toml.part-4711", "calibration.json.part-4711",
                                             "checkpoints/step-6/rank-0000.safetensors.part-4711",
                                             "checkpoints/step-4/manifest.json.part-4711")])
at_rest("config.toml of the run garbage", GOES_ON, write("config.toml", b"\0[[["))
at_rest("calibration.json of the run garbage", GOES_ON, write("calibration.json", b"\0{"))
at_rest("report.html garbage", GOES_ON, write("report.html", b"\0"))
at_rest("a log full of bytes", GOES_ON, write("rank-0.log", bytes(range(256)) * 64))


def newest_lock(trial):
    return max((trial.run / "lock").glob("[0-9]*"), key=lambda path: int(path.name))


def lock_of_another_machine(trial):
    """Nobody here can tell whether the holder lives: the lock is taken when it stays silent."""
    path = newest_lock(trial)
    holder, rest = path.read_text().split("\n", 1)
    path.write_text(json.dumps({**json.loads(holder), "machine": "elsewhere", "host": "elsewhere"}) + "\n" + rest)


at_rest("the lock of another machine, which is silent", GOES_ON, lock_of_another_machine, says="elsewhere")
at_rest("the lock garbage", GOES_ON, lambda trial: newest_lock(trial).write_bytes(b"\0\xff{{"))
at_rest("the lock empty", GOES_ON, lambda trial: newest_lock(trial).write_bytes(b""))


@FAULTS("a file named as a later checkpoint", ("rest",), "ends 1 and says so")
def file_as_checkpoint(trial):
    trial.take_stopped_run()
    write("checkpoints/step-6", b"x")(trial)
    trial.ends(trial.start(), 1, 2, says="step-6")
    (trial.run / "checkpoints" / "step-6").unlink()


def cut_last_line(trial):
    path = trial.run / "metrics.jsonl"
    path.write_bytes(path.read_bytes()[:-20])


def line_of_future(trial):
    with open(trial.run / "metrics.jsonl", "a", encoding="utf-8") as file:
        file.write('{"step": 7, "loss": 1.0}\n')


at_rest("the last line of the metrics cut off", GOES_ON, cut_last_line)
at_rest("the metrics end with a step of a given-up future", GOES_ON, line_of_future)


def damaged_metrics(name, damage):
    """What is lost is lost; it must be said, or the run refused until it is put right."""
    def strike(trial):
        trial.take_stopped_run()
        path = trial.run / "metrics.jsonl"
        before = path.read_bytes()
        damage(path)
        endings = trial.job_ends(0, 1, 2, says=r"metrics\.jsonl")
        if endings["launcher"].status == 0:
            trial.finished = True
            return
        path.write_bytes(before)
    FAULTS.add(name, ("rest",), "goes on and says what is lost, or is refused", strike)


damaged_metrics("the metrics missing", lambda path: path.unlink())
damaged_metrics("the metrics empty", lambda path: path.write_bytes(b""))
damaged_metrics("a line of the metrics garbage",
                lambda path: path.write_bytes(b'{"step": 0, "lo\xff\n' + path.read_bytes().split(b"\n", 1)[1]))


def refused(name, says, change, repair=None):
    """Changes an input: the run is refused in one line, and goes on when the input is as it was."""
    def strike(trial):
        trial.take_stopped_run()
        files = {suffix: (trial.directory / f"corpus.{suffix}").read_bytes() for suffix in ("bin", "idx")}
        change(trial)
        trial.ends(trial.start(), 2, says=says)
        for suffix, content in files.items():
            (trial.directory / f"corpus.{suffix}").write_bytes(content)
        if repair:
            repair(trial)
    FAULTS.add(name, ("rest",), REFUSED, strike)


def corpus_file(suffix, change):
    def damage(trial):
        path = trial.directory / f"corpus.{suffix}"
        path.write_bytes(change(path.read_bytes(), trial.chance))
    return damage


def other_tokens(trial):
    """Other tokens of the same lengths."""
    documents = [[(token + 1) % 64 for token in document] for document in make_documents(longest=LONGEST)]
    write_corpus(trial.directory / "corpus", documents)


refused("the index of the corpus cut off", r"corpus\.idx", corpus_file("idx", cut))
refused("the tokens of the corpus cut off", r"corpus\.bin", corpus_file("bin", cut))
refused("the corpus missing", "corpus", lambda trial: (trial.directory / "corpus.idx").unlink())
refused("the corpus empty", "corpus", corpus_file("idx", empty))
refused("other tokens of the same lengths", "corpora|corpus|tokens", other_tokens)
refused("another corpus", "corpora|corpus", lambda trial: write_corpus(trial.directory / "corpus", make_documents(longest=LONGEST, seed=8)))
refused("another model", "model|hidden", lambda trial: trial.configure(model__hidden=128),
        lambda trial: trial.configure(model__hidden=64))
refused("another type", "dtype|float", lambda trial: trial.configure(train__dtype="float64"),
        lambda trial: trial.configure(train__dtype="float32"))


def said(name, says, **changes):
    """A changed configuration is taken, and it is said that it changed."""
    def strike(trial):
        trial.take_stopped_run()
        trial.configure(**changes)
        trial.ends(trial.start(), 0, says=says)
        if check.newest(trial.run) != trial.undisturbed.steps:
            raise Broken("the run did not reach its end")
        trial.finished = True
    FAULTS.add(name, ("rest",), "goes on and says what changed", strike)


said("another learning rate", r"optimizer\.lr|\blr\b.*(changed|was|instead)", optimizer__lr=1e-3)
said("other betas", r"betas", optimizer__betas=[0.8, 0.9])
said("another decay", r"decay", optimizer__decay="constant")
said("other tokens_per_step", r"tokens_per_step", data__tokens_per_step=768)


@FAULTS("a new run in a directory with checkpoints", ("rest",), REFUSED)
def fresh_over_old(trial):
    trial.take_stopped_run()
    job = trial.job()
    job.start_locally("run")
    trial.ends(job, 2, says="--resume")


@FAULTS("another run's checkpoint resumed in a directory with checkpoints", ("rest",), REFUSED)
def foreign_over_old(trial):
    trial.take_stopped_run()
    shutil.copytree(trial.run, trial.directory / "other")
    job = trial.job()
    job.start_locally("run", "--resume", "other")
    trial.ends(job, 2, says="checkpoint")
