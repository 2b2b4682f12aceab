// The JSON header of a safetensors file, read in one pass: of a model with experts it names 100,000 tensors
// and more.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/tensor_type.h"

namespace sluice::checkpoint {

// What a writer declares and a reader finds.
struct TensorInfo {
  std::string name;
  TensorType type = TensorType::kFloat32;
  std::vector<int64_t> shape;
  std::string format_type;  // the type's name in the file; writers give it for kOther alone
  int64_t begin_byte = 0;   // in the data; set by the file
  int64_t end_byte = 0;

  int64_t elements() const;
  int64_t bytes() const;
  const char* type_name() const;  // in files
};

// "[3, 4]".
std::string shape_text(const std::vector<int64_t>& shape);

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // as they stand there
  std::map<std::string, std::string> metadata;
};

// InputError naming the file and the fault unless each tensor has a name of its own, a type of the format, a
// shape, and offsets that differ by the shape times the type.
SafetensorsHeader parse_safetensors_header(std::string_view json, const std::string& file);

}  // namespace sluice::checkpoint
