// sluice doctor: checks this machine for working and missing features, and how to get them.
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <system_error>

#include "base/json_fields.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/environment.h"
#include "cli/print.h"
#include "cli/torch_commands.h"
#include "cost/snapshot_cost.h"
#include "ops/device.h"
#include "profile/device_check.h"
#include "profile/machine.h"
#include "storage/s3_store.h"
#include "transport/device_transport.h"
#include "transport/nccl_finding.h"

namespace sluice::cli {

namespace {

struct Finding {
  bool works = true;
  std::string what;
  std::string detail;
};

std::string compiler() {
#ifdef __clang__
  return "clang " __clang_version__;
#else
  return "g++ " __VERSION__;
#endif
}

// Checks the room for snapshots (cost/snapshot_cost.h) in unnamed and in named shared memory.
Finding snapshots(const profile::Machine& machine) {
  constexpr int64_t kBytesOfParameter = sizeof(float) * cost::owner_numbers(true) * cost::kSnapshotCopies;
  std::error_code failure;
  const std::filesystem::space_info named = std::filesystem::space("/dev/shm", failure);
  const std::string room = failure ? "none" : base::human_bytes(static_cast<double>(named.available));
  return {
      !failure && static_cast<int64_t>(named.available) >= machine.available_bytes / 4, "snapshots",
      base::text("memory for snapshots of ", base::human_count(machine.available_bytes / kBytesOfParameter),
                 " trained parameters, ", kBytesOfParameter, " bytes each divided over the ranks; ", room,
                 " in /dev/shm, where snapshots outlive ranks that torchrun or MPI end")};
}

// Lets each GPU, or else the processor, compute and communicate.
void add_checks(const profile::Machine& machine, std::vector<Finding>& findings) {
  std::vector<c10::Device> devices;
  for (size_t gpu = 0; gpu < machine.gpus.size(); ++gpu)
    devices.emplace_back(c10::kCUDA, static_cast<c10::DeviceIndex>(gpu));
  const auto add = [&](const std::string& where, const profile::DeviceCheck& check) {
    findings.push_back(
        {check.fault.empty(), check.what, where + (check.fault.empty() ? check.figure : check.fault)});
  };
  if (devices.empty()) devices.assign(2, c10::kCPU);
  for (const c10::Device& device : devices) {
    const std::string where =
        device.is_cpu() ? "" : base::text("GPU ", static_cast<int>(device.index()), ": ");
    for (const profile::DeviceCheck& check : profile::check_device(device)) add(where, check);
    if (device.is_cpu()) break;
  }
  add("", profile::check_collective(devices));
}

std::vector<Finding> examine() {
  const profile::Machine machine = profile::this_machine();
  std::vector<Finding> findings;
  findings.push_back({true, "compiler", compiler()});
  findings.push_back({true, "libtorch", machine.libtorch_version});
  findings.push_back({true, "processor",
                      base::text(machine.cores, " cores, ", machine.processor,
                                 machine.processors > 0
                                     ? base::text("; this process may use the time of ", machine.processors)
                                     : "")});
  findings.push_back(
      {machine.available_bytes > (int64_t{2} << 30), "memory",
       base::text(base::human_bytes(static_cast<double>(machine.available_bytes)), " available of ",
                  base::human_bytes(static_cast<double>(machine.memory_bytes)),
                  machine.memory_limit.empty() ? "" : base::text(", the limit in ", machine.memory_limit))});
  findings.push_back(snapshots(machine));
  if (!machine.built_with_cuda) {
    findings.push_back({false, "CUDA build",
                        "no nvcc was found when this was built: run tools/bootstrap --gpu, then make build"});
  } else if (machine.gpus.empty()) {
    findings.push_back({false, "GPUs",
                        machine.gpu_fault.empty()
                            ? "CUDA is built in, but there is no driver or no GPU: training uses the CPU"
                            : base::text("they cannot be used: ", machine.gpu_fault)});
  } else {
    std::vector<std::string> names;
    for (const profile::Machine::Gpu& gpu : machine.gpus) names.push_back(gpu.name);
    findings.push_back({true, "GPUs", base::join(names, ", ")});
  }
  if (machine.built_with_cuda) {
    const std::string kernels = ops::kernels_fault();
    findings.push_back({kernels.empty(), "CUDA kernels",
                        kernels.empty() ? "libtorch_cuda and all that it needs can be loaded" : kernels});
    const transport::NcclFinding nccl = transport::find_nccl();
    findings.push_back({nccl.fault.empty(), "NCCL", nccl.fault.empty() ? nccl.version : nccl.fault});
  }
  if (machine.built_with_cuda && !machine.built_with_cudnn) {
    findings.push_back(
        {false, "cuDNN",
         "its frontend's headers were not there when this was built, so attention on GPUs is slower: "
         "run tools/bootstrap and build again"});
  }
  add_checks(machine, findings);
  const corpus::PythonTools tools = python_tools();
  const bool has_tokenizers = !tools.interpreter.empty() || tools.usual.size() > 1;
  findings.push_back(
      {has_tokenizers, "tokenizers",
       !has_tokenizers
           ? "Hugging Face tokenizer.json and Parquet can be read where the PATH's python3 has the "
             "packages tokenizers and pyarrow alone: run tools/bootstrap, or name one with --python"
       : tools.interpreter.empty() ? tools.usual.front().string()
                                   : tools.interpreter.string()});
  const std::string s3 = storage::s3_library();
  findings.push_back(
      {!s3.empty(), "S3",
       s3.empty() ? "no s3:// for checkpoints: install libcurl4-openssl-dev and build again" : s3});
  return findings;
}

void print_all(const std::vector<Finding>& findings) {
  for (const Finding& finding : findings) {
    print("%-4s %-12s %s\n", finding.works ? "ok" : "--", finding.what.c_str(), finding.detail.c_str());
  }
}

base::Json to_json(const std::vector<Finding>& findings) {
  base::Json json = base::Json::array();
  for (const Finding& finding : findings) {
    json.push_back({{"what", finding.what}, {"works", finding.works}, {"detail", finding.detail}});
  }
  return json;
}

}  // namespace

void add_doctor(CLI::App& app) {
  CLI::App* command = app.add_subcommand("doctor", about_torch_command("doctor"));
  auto as_json = std::make_shared<bool>(false);
  command->add_flag("--json", *as_json, "Machine-readable result on stdout");
  command->callback([as_json] {
    const std::vector<Finding> findings = examine();
    if (*as_json) {
      std::cout << base::json_text(to_json(findings), 2) << '\n';
    } else {
      print_all(findings);
    }
  });
}

}  // namespace sluice::cli
