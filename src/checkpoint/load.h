// Loads a checkpoint on any number of ranks: values by (bucket, interval), whichever files hold them.
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

// Reads only the requested parts of rank files, in blocks that are checked against their checksums at their
// first use (blocks.h), on several threads. Files of older programs have no block checksums; they are read
// and checked whole. Not thread-safe. Data from a bucket are in memory from their check until they are read,
// if readers go in the data's order.
class Checkpoint {
 public:
  // Reads the manifest. Errors as in read_manifest.
  explicit Checkpoint(storage::Location directory);
  ~Checkpoint();

  const storage::Location& directory() const { return directory_; }
  const Manifest& manifest() const { return manifest_; }

  // InputError naming the values that differ and the options to set. The choice of frozen parameters may
  // differ; adapters may differ only if the checkpoint has none.
  void require_model(const model::Model& model, TensorType type) const;
  // The checkpoint's model with its frozen base as numbers, whether files hold numbers or codes.
  const model::ParameterTable& plain_table() const { return plain_table_; }

  // Elements `interval` of a bucket's flat array in the checkpoint's own model. DamagedCheckpoint naming a
  // file that is missing or damaged; InputError if a parameter is not finite. Element must be the manifest's
  // type: float or double. REQUIRES: the bucket has this state.
  template <typename Element>
  void read(int bucket, base::Interval interval, State state, Element* values);
  // The same for a bucket of a model that require_model accepted, as numbers where that model has numbers.
  // Leaves elements untouched that the checkpoint lacks: adapters, and moments of formerly frozen parameters.
  template <typename Element>
  void read(const model::Bucket& bucket, base::Interval interval, State state, Element* values);
  bool has(int bucket, State state) const {
    return state == State::kMaster || table_.buckets[static_cast<size_t>(bucket)].trained;
  }

  // The model's companions. DamagedCheckpoint as for read().
  std::vector<Companion> companions() const;

  // Checks the blocks with elements of `wanted`, by bucket of a model that require_model accepted; without
  // arguments all files and companions. Finds early what `read` would find late. Checks each block once.
  void verify(const model::ParameterTable& table, std::span<const base::Interval> wanted);
  void verify();
  // Checks only that all files exist with their lengths and headers, which is all that can be known without
  // fetching a remote checkpoint. Data are checked when they are read.
  void look_through();

 private:
  struct RankFile;

  // The part of a file that holds elements of a bucket's state.
  struct Piece {
    size_t file = 0;
    base::Interval elements;
    base::Interval bytes;  // in the file's data
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
  std::vector<FileRecord> records_;  // ranks' files, then shared files
  model::ParameterTable table_;
  model::ParameterTable plain_table_;
  model::ParameterIndex places_;
  std::vector<std::unique_ptr<RankFile>> files_;  // parallel to records_; null until needed
};

}  // namespace sluice::checkpoint
