// Loading a checkpoint on any number of ranks: values by (bucket, interval), from whatever files hold them.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "checkpoint/companions.h"
#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"
#include "model/parameter_index.h"

namespace sluice::checkpoint {

enum class State : uint8_t { kMaster, kExpAvg, kExpAvgSq };

// Reads no more of the rank files than what is asked for, in blocks that are held against their checksums
// when something of them is first read (blocks.h), on several threads. Files of older programs have none:
// such a file is read and checked as a whole. Not thread-safe. What comes from a bucket is in memory between
// its check and its reading, and no longer where it is read in the order in which it lies there.
class Checkpoint {
 public:
  // Reads the manifest. Errors as in read_manifest.
  explicit Checkpoint(storage::Location directory);
  ~Checkpoint();

  const storage::Location& directory() const { return directory_; }
  const Manifest& manifest() const { return manifest_; }

  // InputError naming the values that differ and what to set. What is frozen may differ; adapters only if the
  // checkpoint has none.
  void require_model(const model::Shape& shape, TensorType type) const;
  // The checkpoint's model with its frozen base as numbers, whether files have these or codes.
  const model::ParameterTable& plain_table() const { return plain_table_; }

  // Elements `interval` of a bucket's flat array, as the checkpoint's own model has it. DamagedCheckpoint
  // naming the file when it is missing or not as it was written; InputError when a parameter is not finite.
  // Element must be the manifest's type: float or double. REQUIRES: the bucket has such a state.
  template <typename Element>
  void read(int bucket, base::Interval interval, State state, Element* values);
  // The same of a bucket of the model that require_model accepted, as numbers what it has as such. What the
  // checkpoint does not have stays as it is: adapters, and moments of what was frozen.
  template <typename Element>
  void read(const model::Bucket& bucket, base::Interval interval, State state, Element* values);
  bool has(int bucket, State state) const {
    return state == State::kMaster || table_.buckets[static_cast<size_t>(bucket)].trained;
  }

  // The model's companions. DamagedCheckpoint as above.
  std::vector<Companion> companions() const;

  // Checks what holds something of the interval of each bucket of a model that require_model accepted, or all
  // files and companions: what `read` would find out late. Nothing is checked twice.
  void verify(const model::ParameterTable& table, std::span<const base::Interval> wanted);
  void verify();
  // Only whether all of them are there, as long as they should be, with headers as they were written: what
  // can be known without fetching a checkpoint from afar. The rest is checked when it is read.
  void look_through();

 private:
  struct RankFile;

  // What of a file holds elements of a bucket's state.
  struct Piece {
    size_t file = 0;
    base::Interval elements;
    base::Interval bytes;  // of the file's data
  };

  RankFile& file(size_t index);
  std::vector<Piece> pieces(int bucket, base::Interval interval, State state);
  std::unique_ptr<RankFile> open(const FileRecord& record) const;
  storage::Location location_of(const FileRecord& record) const;
  void require_tensors(const SafetensorsFile& file, const FileRecord& record) const;
  template <typename Element>
  void require_finite(int bucket, std::span<const Element> values) const;

  storage::Location directory_;
  Manifest manifest_;
  std::vector<FileRecord> records_;  // of the ranks' files, then of the shared ones
  model::ParameterTable table_;
  model::ParameterTable plain_table_;
  model::ParameterIndex places_;
  std::vector<std::unique_ptr<RankFile>> files_;  // of records_; null until needed
};

}  // namespace sluice::checkpoint
