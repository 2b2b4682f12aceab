#include "checkpoint/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/text.h"

namespace sluice::checkpoint {
namespace {

using base::InputError;
using base::Json;
using base::text;

static_assert(std::endian::native == std::endian::little, "safetensors data is little-endian");

// The format's own limit on headers.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
constexpr size_t kSizeBytes = 8;
constexpr const char* kFetchAgain = ": the file is damaged or incomplete: fetch or write it again";

// Size of the JSON header behind the size field; fetches both.
uint64_t header_size(storage::Source& file, const std::string& name) {
  uint64_t size = 0;
  const auto file_bytes = static_cast<uint64_t>(file.size());
  if (file_bytes < kSizeBytes) {
    throw InputError(text(name, ": ", file_bytes, " bytes are no safetensors file", kFetchAgain));
  }
  constexpr int64_t kGuessBytes = int64_t{1} << 16;
  const base::Interval guess{0, std::min(file.size(), kGuessBytes)};
  file.fetch(guess);
  std::memcpy(&size, file.data(), kSizeBytes);
  if (size > kMaxHeaderBytes || size > file_bytes - kSizeBytes) {
    throw InputError(
        text(name, ": the header claims ", size, " bytes but the file has ", file_bytes, kFetchAgain));
  }
  file.fetch({guess.end, static_cast<int64_t>(kSizeBytes + size)});
  return size;
}

// InputError unless the tensors, ascending, cover [0, data_bytes).
void require_cover(const std::vector<TensorInfo>& tensors, int64_t data_bytes, const std::string& path) {
  int64_t end = 0;
  for (const TensorInfo& tensor : tensors) {
    if (tensor.begin_byte != end) {
      throw InputError(text(path, ": tensor '", tensor.name, "' begins at byte ", tensor.begin_byte,
                            tensor.begin_byte < end ? ", inside another one" : ", behind a gap",
                            ", expected ", end, kFetchAgain));
    }
    end = tensor.end_byte;
  }
  if (end != data_bytes) {
    throw InputError(
        text(path, ": the tensors need ", end, " bytes but the file holds ", data_bytes, kFetchAgain));
  }
}

int64_t bytes_of(const std::vector<TensorInfo>& tensors) {
  int64_t bytes = 0;
  for (const TensorInfo& tensor : tensors) bytes += tensor.bytes();
  return bytes;
}

// A tensor's name as a JSON string, without building a tree of the whole header.
std::string quoted(const std::string& name) { return base::json_text(name); }

}  // namespace

SafetensorsFile::SafetensorsFile(storage::Location location)
    : location_(std::move(location)), source_(location_.open()) {
  const std::string name = location_.string();
  const uint64_t size = header_size(*source_, name);
  const auto* header_text = reinterpret_cast<const char*>(source_->data() + kSizeBytes);
  SafetensorsHeader header = parse_safetensors_header({header_text, size}, name);
  tensors_ = std::move(header.tensors);
  metadata_ = std::move(header.metadata);
  std::sort(tensors_.begin(), tensors_.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::pair(a.begin_byte, a.end_byte) < std::pair(b.begin_byte, b.end_byte);
  });
  header_bytes_ = static_cast<int64_t>(kSizeBytes + size);
  require_cover(tensors_, data_bytes(), name);
  by_name_.reserve(tensors_.size());
  for (size_t index = 0; index < tensors_.size(); ++index) by_name_[tensors_[index].name] = index;
}

const TensorInfo* SafetensorsFile::find(const std::string& name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &tensors_[found->second];
}

const TensorInfo& SafetensorsFile::require(const std::string& name, TensorType type,
                                           const std::vector<int64_t>& shape) const {
  const TensorInfo* tensor = find(name);
  if (tensor == nullptr)
    throw InputError(text(location_.string(), ": tensor '", name, "' is missing", kFetchAgain));
  if (tensor->type != type || tensor->shape != shape) {
    throw InputError(text(location_.string(), ": tensor '", name, "' is ", tensor->format_type, " ",
                          shape_text(tensor->shape), ", expected ", format_name(type), " ", shape_text(shape),
                          ": it belongs to another model or precision"));
  }
  return *tensor;
}

uint64_t SafetensorsFile::header_checksum() const {
  return base::hash_bytes(source_->data(), static_cast<size_t>(header_bytes_));
}

uint64_t SafetensorsFile::checksum() const {
  fetch({0, data_bytes()});
  return base::hash_bytes(source_->data(), static_cast<size_t>(size_bytes()));
}

std::string safetensors_header(const std::vector<TensorInfo>& tensors,
                               const std::map<std::string, std::string>& metadata) {
  std::string json = "{";
  if (!metadata.empty()) json += text(quoted("__metadata__"), ":", base::json_text(Json(metadata)));
  int64_t begin = 0;
  for (const TensorInfo& tensor : tensors) {
    SLUICE_ASSERT(element_bits(tensor.type_name()) > 0, text("tensor ", tensor.name, " has no type"));
    const int64_t end = begin + tensor.bytes();
    json +=
        text(json.size() > 1 ? "," : "", quoted(tensor.name), ":",
             base::json_text(
                 {{"dtype", tensor.type_name()}, {"shape", tensor.shape}, {"data_offsets", {begin, end}}}));
    begin = end;
  }
  json += "}";
  json.resize((json.size() + 7) / 8 * 8, ' ');  // the data starts aligned to 8 bytes
  const uint64_t size = json.size();
  return std::string(reinterpret_cast<const char*>(&size), sizeof size) + json;
}

SafetensorsWriter::SafetensorsWriter(const storage::Location& location,
                                     const std::vector<TensorInfo>& tensors,
                                     const std::map<std::string, std::string>& metadata)
    : remaining_bytes_(bytes_of(tensors)) {
  const std::string header = safetensors_header(tensors, metadata);
  file_ = location.create(static_cast<int64_t>(header.size()) + remaining_bytes_);
  append(header.data(), header.size());
  header_checksum_ = hash_.value();
}

void SafetensorsWriter::write(const void* bytes, int64_t size) {
  SLUICE_ASSERT(size <= remaining_bytes_, text(size, " bytes for ", remaining_bytes_, " declared"));
  append(bytes, static_cast<size_t>(size));
  remaining_bytes_ -= size;
}

// Works in parts that fit a core's cache, so that hashing and writing read memory once.
void SafetensorsWriter::append(const void* bytes, size_t size) {
  constexpr size_t kPartBytes = size_t{256} << 10;
  const auto* next = static_cast<const std::byte*>(bytes);
  for (size_t part = 0; size > 0; next += part, size -= part) {
    part = std::min(size, kPartBytes);
    hash_.add(next, part);
    file_->write(next, part);
    size_bytes_ += static_cast<int64_t>(part);
  }
}

void SafetensorsWriter::finish() {
  SLUICE_ASSERT(remaining_bytes_ == 0, text(remaining_bytes_, " declared bytes were not written"));
  file_->finish();
}

}  // namespace sluice::checkpoint
