"""What a GPU kit does on the machine it came to, smallest first; each step is a command with its own limit of time."""

import dataclasses
import re
import sys
from collections.abc import Callable

import gpu_kit_machine as machine
from gpu_kit_runs import PUBLISHED_LORA


def judge_status(status, output):
    return "passed" if status == 0 else "timed out" if status == -9 else f"failed ({status})"


def judge_tests(status, output):
    """A skipped test proves nothing: on a machine with a GPU there is none."""
    if status == 0 and "[  SKIPPED ]" in output:
        return "skipped"
    if status == 0 and not re.search(r"\[  PASSED  \] [1-9]", output):
        return "ran nothing"
    return judge_status(status, output)


def judge_measurement(status, output):
    return "measured" if status == 0 and '\n{"' in "\n" + output else judge_status(status or 1, output)


@dataclasses.dataclass
class Step:
    name: str
    command: Callable[[machine.Context], list]
    seconds: int
    judge: Callable[[int, str], str] = judge_status
    environment: dict = dataclasses.field(default_factory=dict)


def tests(program, pattern, seconds, *, under=(), name="", environment=None):
    """The tests of a test program whose names match."""
    return Step(f"{program} {pattern}{name}",
                lambda context: [*under, context.program(program), f"--gtest_filter={pattern}", "--gtest_brief=0"],
                seconds, judge_tests, environment or {})


SANITIZER = ("compute-sanitizer", "--error-exitcode", "9", "--target-processes", "all", "--tool")


def script(name, *arguments):
    return lambda context: [sys.executable, str(context.folder / name), *arguments]


def run_of(name):
    """A training run of tools/gpu_kit_runs.py."""
    return lambda context: [sys.executable, str(context.folder / "tools" / "gpu_kit_runs.py"), name,
                            context.program("sluice"), str(context.scratch)]


DEVICE_RUNS = "DeviceExecutor.*:DeviceExecutor/*OnAGpu*"


def sanitizer_steps():
    small = "DeviceOps.RmsNorm*:*DeviceOps.Swiglu*:*DeviceOps.Rotary*:*DeviceOps.CrossEntropy*"
    one_rank = "DeviceExecutor.OneRank*"
    return [
        tests("ops_test", f"*{small}", 120, under=(*SANITIZER, "memcheck"), name=" under memcheck"),
        tests("ops_test", f"*{small}", 120, under=(*SANITIZER, "racecheck"), name=" under racecheck"),
        tests("runtime_test", one_rank, 180, under=(*SANITIZER, "memcheck"), name=" under memcheck"),
        tests("runtime_test", one_rank, 180, under=(*SANITIZER, "initcheck"), name=" under initcheck"),
    ]


def test_steps():
    return [
        Step("machine", script("tools/gpu_kit_facts.py"), 60, judge_measurement),
        Step("doctor", lambda context: [context.program("sluice"), "doctor"], 30),
        tests("ops_test", "*DeviceOps*", 120),
        tests("ops_test", "*Device*:*Gpu*:*CudnnGraph*:-*DeviceOps*", 60),
        tests("transport_test", "DeviceTransport.*:Nccl.*", 60),
        tests("layers_test", "DeviceModel.*", 90),
        tests("layers_test", "*Families.OnAGpuEqualAutograd/*", 120),
        tests("runtime_test", "DeviceOptimizer.*:DeviceCalls.*", 60),
        tests("runtime_test", DEVICE_RUNS, 180),
        tests("runtime_test", DEVICE_RUNS, 270, name=" without caching of memory",
              environment={"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}),
        Step("training: corpus", run_of("corpus"), 120),
        Step("training: learns", run_of("learns"), 240, judge_measurement),
        Step("training: strategies agree", run_of("agree"), 240, judge_measurement),
        Step("training: offload overlaps", run_of("offload"), 180, judge_measurement),
        Step("generation", run_of("generates"), 120, judge_measurement),
        Step("reinforcement learning", run_of("reinforces"), 120, judge_measurement),
        *(sanitizer_steps() if machine.has(SANITIZER[0]) else []),
    ]


def layer_steps(model, load, seconds):
    return Step(f"layers: {model}, {load}",
                lambda context: [context.program("device_layers_bench"), "--model", model, "--only", load, "--data",
                                 str(context.folder / "bench" / "data")], seconds, judge_measurement)


def torch_steps(model, load, attention, seconds=120):
    return Step(f"PyTorch's layers: {model}, {load}, {attention}",
                script("bench/device_layers.py", "--model", model, "--only", load, "--attention", attention), seconds,
                judge_measurement)


def bench_steps():
    """What the claims rest on first: packed lengths of 8B's layers, each beside PyTorch's."""
    loads = ("2x8192", "wikipedia-16384", "code-16384", "4x4096", "1x16384", "1x32768", "1x131072")
    beside = [step for load in loads[:3]
              for step in (layer_steps("8b", load, 60), *(torch_steps("8b", load, way) for way in ("varlen", "flex")))]
    return [*beside,
            Step("calibration: 8b", run_of("calibrate"), 240, judge_measurement),
            Step("steps as foreseen: 8b", run_of("foreseen"), 240, judge_measurement),
            layer_steps("7b", loads[0], 60), *(torch_steps("7b", loads[0], way) for way in ("varlen", "flex")),
            *(layer_steps("8b", load, 60) for load in loads[3:]),
            *(torch_steps("8b", load, "varlen") for load in loads[3:]),
            *(layer_steps("7b", load, 60) for load in loads[1:]),
            *(Step(f"LoRA beside a published figure: {model}", run_of(model), 240, judge_measurement)
              for model in PUBLISHED_LORA)]


# Parts for a machine that is lent for little time: what is worth most first, each step's limit low, and each part's limits
# together at most PART_SECONDS. What `build` made travels with them.
PART_SECONDS = 300
EVERY_KIND = ("Experts", "Recurrent", "Cases", "Tuned", "Adapted", "Decomposed", "NormsAndMlps", "Positions", "PartsOfFamilies", "Values",
              "LayersOfFamilies")  # of layers, the suites of layers_test's Families
FEATURES = "DeviceExecutor/RunsOfFeatures.TrainOnAGpuAsOneRankOnTheCpu/*"


def first_part():
    """What anything else rests on: the machine, each operation, each kind of layer, one rank's run."""
    return [
        Step("machine", script("tools/gpu_kit_facts.py"), 15, judge_measurement),
        Step("doctor", lambda context: [context.program("sluice"), "doctor"], 10),
        tests("ops_test", "*DeviceOps*", 45),
        tests("layers_test", "DeviceModel.*", 20),
        tests("layers_test", ":".join(f"{suite}/Families.OnAGpuEqualAutograd/*" for suite in EVERY_KIND), 50),
        tests("runtime_test", "DeviceExecutor.*", 45),
        Step("training: corpus", run_of("corpus"), 30),
        Step("training: learns", run_of("learns"), 55, judge_measurement),
        tests("ops_test", "*Device*:*Gpu*:*CudnnGraph*:-*DeviceOps*", 30),
    ]


def second_part():
    """Each feature, text generation, reinforcement learning, then the first figures."""
    return [
        tests("runtime_test", FEATURES, 90),
        Step("generation", run_of("generates"), 40, judge_measurement),
        Step("reinforcement learning", run_of("reinforces"), 40, judge_measurement),
        tests("runtime_test", "DeviceOptimizer.*:DeviceCalls.*", 20),
        tests("transport_test", "DeviceTransport.*:Nccl.*", 20),
        layer_steps("8b", "2x8192", 30),
        torch_steps("8b", "2x8192", "varlen", 40),
        Step("training: offload overlaps", run_of("offload"), 20, judge_measurement),
    ]


def build_steps():
    return [Step("build", lambda context: ["bash", str(context.folder / "tools" / "gpu_kit_build.sh"),
                                           str(machine.torch_folder().parent)], 500)]
