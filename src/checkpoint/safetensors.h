// The safetensors format: an 8-byte little-endian header size, a JSON header, and the tensors' bytes.
//
// The reader fetches the header and trusts nothing. The header must fit the file, and every tensor's offsets
// must equal its shape times its type. Together the tensors must cover the data without gap or overlap.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/stream_hash.h"
#include "checkpoint/safetensors_header.h"
#include "storage/location.h"

namespace sluice::checkpoint {

// A file opened for reading. Usable from several threads at once.
class SafetensorsFile {
 public:
  // base::InputError naming the path, the value and what to do unless the file is whole and valid.
  explicit SafetensorsFile(storage::Location location);

  const storage::Location& location() const { return location_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }  // in the order of their bytes
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const TensorInfo* find(const std::string& name) const;  // null if absent
  // InputError naming the tensor unless it exists with this type and shape.
  const TensorInfo& require(const std::string& name, TensorType type,
                            const std::vector<int64_t>& shape) const;

  // The tensor's bytes at any alignment. They live as long as this object. Bytes of a bucket's file are valid
  // only if they have been fetched.
  const std::byte* data(const TensorInfo& tensor) const { return data() + tensor.begin_byte; }
  // All tensors' bytes.
  const std::byte* data() const { return source_->data() + header_bytes_; }
  int64_t data_bytes() const { return size_bytes() - header_bytes_; }
  // As in storage::Source, but byte numbers count from the begin of the data.
  void fetch(base::Interval bytes) const { source_->fetch(in_file(bytes)); }
  bool release(base::Interval bytes) const { return source_->release(in_file(bytes)); }
  int readers() const { return source_->readers(); }
  // Hash of all bytes before the data; as SafetensorsWriter::header_checksum().
  uint64_t header_checksum() const;
  // Hash of the whole file (base::hash_bytes); reads all of it.
  uint64_t checksum() const;
  int64_t size_bytes() const { return source_->size(); }

 private:
  base::Interval in_file(base::Interval bytes) const {
    return {bytes.begin + header_bytes_, bytes.end + header_bytes_};
  }

  storage::Location location_;
  std::unique_ptr<storage::Source> source_;
  int64_t header_bytes_ = 0;  // with the 8 bytes of its size
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t> by_name_;
  std::map<std::string, std::string> metadata_;
};

// The bytes of a file with these tensors that precede the tensors' data.
std::string safetensors_header(const std::vector<TensorInfo>& tensors,
                               const std::map<std::string, std::string>& metadata = {});

// Writes a file tensor by tensor; it appears under its name only at finish(). base::RunError on a full or
// unwritable disk.
class SafetensorsWriter {
 public:
  // Data must follow in the order of `tensors`, which are as for safetensors_header.
  SafetensorsWriter(const storage::Location& location, const std::vector<TensorInfo>& tensors,
                    const std::map<std::string, std::string>& metadata = {});

  // Appends to the data; a tensor may come in any number of parts.
  void write(const void* bytes, int64_t size);
  // REQUIRES: exactly the declared bytes have been written.
  void finish();

  // Figures of the whole file, as SafetensorsFile has them; after finish().
  int64_t size_bytes() const { return size_bytes_; }
  uint64_t checksum() const { return hash_.value(); }
  uint64_t header_checksum() const { return header_checksum_; }

 private:
  void append(const void* bytes, size_t size);

  std::unique_ptr<storage::Sink> file_;
  base::StreamHash hash_;
  int64_t size_bytes_ = 0;
  uint64_t header_checksum_ = 0;
  int64_t remaining_bytes_ = 0;
};

}  // namespace sluice::checkpoint
