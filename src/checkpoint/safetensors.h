// The safetensors format: an 8-byte little-endian header size, a JSON header, and the tensors' bytes.
//
// The reader maps the file and trusts nothing: the header must fit the file, every tensor's offsets must
// equal its shape times its type, and together the tensors must cover the data without gap or overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/stream_hash.h"
#include "checkpoint/tensor_type.h"

namespace sluice::checkpoint {

// What a writer declares and a reader finds.
struct TensorInfo {
  std::string name;
  TensorType type = TensorType::kFloat32;
  std::vector<int64_t> shape;
  std::string format_type;  // the type's name in the file, also for kOther; writers leave it empty
  int64_t begin_byte = 0;   // in the data; set by the file
  int64_t end_byte = 0;

  int64_t elements() const;
};

// "[3, 4]".
std::string shape_text(const std::vector<int64_t>& shape);

// A file opened for reading. Immutable and so usable from several threads at once.
class SafetensorsFile {
 public:
  // base::InputError naming the path, the value and what to do unless the file is whole and valid.
  explicit SafetensorsFile(const std::filesystem::path& path);

  const std::filesystem::path& path() const { return path_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in the order of their bytes
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorInfo* find(const std::string& name) const;  // null when absent
  // InputError naming the tensor unless it is there with this type and shape.
  const TensorInfo& require(const std::string& name, TensorType type,
                            const std::vector<int64_t>& shape) const;

  // The tensor's bytes; any alignment. They live as long as this object.
  const std::byte* data(const TensorInfo& tensor) const { return data_ + tensor.begin_byte; }
  // All tensors' bytes.
  const std::byte* data() const { return data_; }
  int64_t data_bytes() const { return size_bytes() - (data_ - file_.data()); }
  // Hash of what precedes them; as SafetensorsWriter::header_checksum().
  uint64_t header_checksum() const;
  // Hash of the whole file (base::hash_bytes); reads all of it.
  uint64_t checksum() const;
  int64_t size_bytes() const { return static_cast<int64_t>(file_.size()); }

 private:
  std::filesystem::path path_;
  base::MappedFile file_;
  const std::byte* data_ = nullptr;
  std::vector<TensorInfo> tensors_;
  std::map<std::string, size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

// Writes a file tensor by tensor; it appears under its name only at finish(). base::RunError on a full or
// unwritable disk.
class SafetensorsWriter {
 public:
  // `tensors` in the order in which their bytes will come; kOther is not allowed.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorInfo>& tensors,
                    const std::map<std::string, std::string>& metadata = {});

  // The next bytes of the data; a tensor may come in any number of parts.
  void write(const void* bytes, int64_t size);
  // REQUIRES: exactly the declared bytes have been written.
  void finish();

  // Of the whole file, as SafetensorsFile has them; after finish().
  int64_t size_bytes() const { return file_.written_bytes(); }
  uint64_t checksum() const { return hash_.value(); }
  uint64_t header_checksum() const { return header_checksum_; }

 private:
  void append(const void* bytes, size_t size);

  base::AtomicFile file_;
  base::StreamHash hash_;
  uint64_t header_checksum_ = 0;
  int64_t remaining_bytes_ = 0;
};

}  // namespace sluice::checkpoint
