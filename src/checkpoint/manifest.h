// manifest.json: what makes a directory of rank files a checkpoint. It is written last, so a directory
// without it is half-written and counts for nothing.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/interval.h"
#include "base/json.h"
#include "checkpoint/tensor_type.h"
#include "model/parameters.h"

namespace sluice::checkpoint {

// One rank's file.
struct FileRecord {
  std::string name;  // "rank-0003.safetensors"
  int64_t bytes = 0;
  uint64_t checksum = 0;                  // base::hash_bytes of the whole file
  std::vector<base::Interval> intervals;  // by bucket: the elements it holds
};

struct Manifest {
  int64_t step = 0;  // optimiser steps done
  int world_size = 1;
  model::Shape shape;
  TensorType type = TensorType::kFloat32;  // of masters and Adam states: kFloat32 or kFloat64
  std::vector<FileRecord> files;
  base::Json sampler;  // opaque here, as are the next two
  base::Json calibration;
  std::string config;  // the run's resolved TOML
};

// "rank-0003.safetensors".
std::string rank_file_name(int rank);

// "sluice.checkpoint/1" and back. from_json throws base::InputError naming `name` and the fault; the files'
// intervals must cover every bucket of the shape exactly once.
base::Json to_json(const Manifest& manifest);
Manifest manifest_from_json(const base::Json& json, const std::string& name);

// <directory>/manifest.json. InputError when absent: the directory holds no committed checkpoint.
Manifest read_manifest(const std::filesystem::path& directory);

}  // namespace sluice::checkpoint
