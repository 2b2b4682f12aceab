// Checksums of a file's data block by block, in the file's own header: who needs a part of a rank's file
// reads and checks that part alone. The header itself is vouched for by the manifest.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/interval.h"
#include "base/stream_hash.h"
#include "checkpoint/safetensors.h"

namespace sluice::checkpoint {

// Hashes the data of a file to be, in the order of its bytes.
class BlockHasher {
 public:
  void add(const void* data, int64_t size);
  // What a header says of all that was added (SafetensorsWriter's metadata).
  std::map<std::string, std::string> metadata() const;

 private:
  std::string hashes_;  // of the blocks that are complete, 16 digits each
  int64_t block_bytes_ = 0;
  base::StreamHash block_;
};

// Which blocks of a file are as they were written. Not thread-safe.
class CheckedBlocks {
 public:
  // `file` outlives this. Without blocks in its header there is nothing to check: all counts as checked.
  explicit CheckedBlocks(const SafetensorsFile& file);

  // Reads the blocks that hold any of these bytes of the data and are not checked yet, on several threads.
  // DamagedCheckpoint naming the file and the first bytes that are not what was written.
  void require(std::span<const base::Interval> bytes);
  // Whoever reads in the order of the bytes is done with those before `end`: what of them takes memory is let
  // go, to be read and checked again should it be wanted again.
  void release_before(int64_t end);

 private:
  std::vector<size_t> unchecked(std::span<const base::Interval> bytes) const;

  const SafetensorsFile& file_;
  std::vector<uint64_t> hashes_;
  std::vector<char> checked_;
  size_t released_ = 0;  // no block before it is held
};

}  // namespace sluice::checkpoint
