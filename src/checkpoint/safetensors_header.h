// Parses the JSON header of a safetensors file in one pass: for a model with experts it names 100,000 tensors
// and more.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_type.h"

namespace sluice::checkpoint {

// A tensor as a writer declares it and a reader finds it.
struct TensorInfo {
  std::string name;
  TensorType type = TensorType::kFloat32;
  std::vector<int64_t> shape;
  std::string format_type;  // its name in the file; writers set it for kOther alone
  int64_t begin_byte = 0;   // offset in the data; set by the file
  int64_t end_byte = 0;

  int64_t elements() const;
  int64_t bytes() const;
  const char* type_name() const;  // name in files
};

// "[3, 4]".
std::string shape_text(const std::vector<int64_t>& shape);

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // in the header's order
  std::map<std::string, std::string> metadata;
};

// InputError naming the file and the fault unless each tensor has a unique name, a type of the format, a
// shape, and offsets that differ by the shape times the type.
SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& file);

}  // namespace sluice::checkpoint
