#include "checkpoint/load.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/error.h"
#include "base/hash.h"
#include "base/text.h"
#include "checkpoint/blocks.h"
#include "model/coded_weight.h"
#include "model/differences.h"
#include "model/tuning.h"

namespace sluice::checkpoint {
namespace {

using base::InputError;
using base::Interval;
using base::text;

const char* name_of(State state) {
  switch (state) {
    case State::kMaster: return "master";
    case State::kExpAvg: return "exp_avg";
    case State::kExpAvgSq: return "exp_avg_sq";
  }
  return "";
}

// DamagedCheckpoint unless the file exists and has the recorded number of bytes.
void require_file(const storage::Location& location, const FileRecord& record) {
  const std::optional<storage::FileStatus> status = location.status();
  if (!status) throw DamagedCheckpoint(text(location.string(), " is missing, or no file"));
  if (status->bytes == record.bytes) return;
  throw DamagedCheckpoint(
      text(location.string(), " has ", status->bytes, " bytes, the manifest says ", record.bytes));
}

void require_checksum(const storage::Location& location, uint64_t found, uint64_t recorded) {
  if (found == recorded) return;
  throw DamagedCheckpoint(text(location.string(), " has checksum ", base::hash_text(found),
                               ", the manifest says ", base::hash_text(recorded)));
}

uint64_t checksum_of(storage::Source& file) {
  file.fetch({0, file.size()});
  return base::hash_bytes(file.data(), static_cast<size_t>(file.size()));
}

// Position of elements `part` of a bucket in the data of a file that holds elements `held` of it.
Interval bytes_of(const TensorInfo& tensor, Interval held, Interval part) {
  const int64_t element = size_of(tensor.type);
  return {tensor.begin_byte + (part.begin - held.begin) * element,
          tensor.begin_byte + (part.end - held.begin) * element};
}

// The first value in which two models differ, as "hidden 64, but the run has 128"; "" when equal.
std::string difference(const model::Model& saved, const model::Model& run) {
  const auto both = [](const char* name, int64_t theirs, int64_t ours) {
    return text(name, " ", theirs, " but the run has ", ours);
  };
  const std::vector<model::SizeDifference> sizes = model::size_differences(saved, run);
  if (!sizes.empty()) return both(sizes.front().name, sizes.front().first, sizes.front().second);
  if (saved.ties_embeddings() != run.ties_embeddings())
    return both("tie_embeddings", saved.ties_embeddings(), run.ties_embeddings());
  if (saved.head() != run.head()) return "another head than the run";
  const bool alike = model::compute_alike(model::untuned(saved), model::untuned(run));
  return alike ? "" : "another norm, rope, window, bias or factor than the run";
}

std::string text_of(const model::Lora& lora) {
  if (lora.rank == 0) return "no adapters";
  return text(lora.dora ? "DoRA's adapters of rank " : "adapters of rank ", lora.rank, " and alpha ",
              lora.alpha, " at ", base::join(lora.targets, ", "));
}

std::string text_of(const model::BaseFormat& format) {
  return format.coded() ? text(base::name_of(format.format), ", in words of ", format.word_bytes, " bytes")
                        : "numbers";
}

}  // namespace

struct Checkpoint::RankFile {
  explicit RankFile(const storage::Location& location) : file(location), blocks(file) {}

  SafetensorsFile file;
  CheckedBlocks blocks;
};

Checkpoint::~Checkpoint() = default;

Checkpoint::Checkpoint(storage::Location directory)
    : directory_(std::move(directory)),
      manifest_(read_manifest(directory_)),
      records_(manifest_.files),
      table_(model::parameter_table(manifest_.model)),
      plain_table_(model::parameter_table(model::with_plain_base(manifest_.model))),
      places_(table_) {
  records_.insert(records_.end(), manifest_.shared.begin(), manifest_.shared.end());
  files_.resize(records_.size());
}

void Checkpoint::require_model(const model::Model& model, TensorType type) const {
  const std::string fault = difference(manifest_.model, model);
  if (!fault.empty()) {
    throw InputError(text(directory_.string(), " has ", fault, ": resume with the [model] it was made with"));
  }
  if (manifest_.model.has_mtp() != model.has_mtp()) {
    const auto kept = [](bool trains) { return trains ? "trains" : "does not train"; };
    throw InputError(text(directory_.string(), " is of a run that ", kept(manifest_.model.has_mtp()),
                          " its MTP layer, and this run ", kept(model.has_mtp()),
                          " it: resume with the train.mtp it was made with, or begin from an export"));
  }
  const model::Lora& saved = manifest_.model.lora();
  if (saved.rank > 0 && saved != model.lora()) {
    throw InputError(
        text(directory_.string(), " has ", text_of(saved), " but the run ", text_of(model.lora()),
             ": resume with the [lora] it was made with, or train on from an export, which ", "merges them"));
  }
  if (saved.rank == 0 && model.lora().dora) {
    throw InputError(
        text(directory_.string(),
             " has no adapters but the run DoRA's, whose magnitudes begin as the norms of a model "
             "folder's matrices: export the checkpoint, and give the run that folder as model.hf"));
  }
  if (model.base().coded() && model.base() != manifest_.model.base()) {
    throw InputError(text(directory_.string(), " has its frozen base in ", text_of(manifest_.model.base()),
                          " but the run in ", text_of(model.base()),
                          ": resume with the model.base and train.dtype ",
                          "it was made with, or begin from an export"));
  }
  if (manifest_.type != type) {
    throw InputError(text(directory_.string(), " holds ", config_name(manifest_.type), " but the run keeps ",
                          config_name(type), " masters: set train.dtype to match"));
  }
}

template <typename Element>
void Checkpoint::read(int bucket, Interval interval, State state, Element* values) {
  constexpr TensorType kType = std::is_same_v<Element, double> ? TensorType::kFloat64 : TensorType::kFloat32;
  if (manifest_.type != kType) {
    throw InputError(text(directory_.string(), " holds ", config_name(manifest_.type), ", not ",
                          config_name(kType), ": set train.dtype to match"));
  }
  for (const Piece& scheduled : pieces(bucket, interval, state)) {
    RankFile& from = file(scheduled.file);
    from.blocks.require({&scheduled.bytes, 1});
    std::memcpy(values + (scheduled.elements.begin - interval.begin),
                from.file.data() + scheduled.bytes.begin, static_cast<size_t>(scheduled.bytes.size()));
    from.blocks.release_before(scheduled.bytes.end);
  }
  if (state == State::kMaster)
    require_finite(bucket, std::span<const Element>(values, static_cast<size_t>(interval.size())));
}

template void Checkpoint::read(int, Interval, State, float*);
template void Checkpoint::read(int, Interval, State, double*);

namespace {

// Extracts words that files store in wide numbers: the upper half of each number for bfloat16 words.
template <typename Element>
std::vector<std::byte> bytes_of_words(const std::vector<Element>& numbers, int64_t word_bytes) {
  std::vector<std::byte> bytes(numbers.size() * static_cast<size_t>(word_bytes));
  const size_t skipped = sizeof(Element) - static_cast<size_t>(word_bytes);
  for (size_t i = 0; i < numbers.size(); ++i) {
    std::memcpy(bytes.data() + i * static_cast<size_t>(word_bytes),
                reinterpret_cast<const std::byte*>(&numbers[i]) + skipped, static_cast<size_t>(word_bytes));
  }
  return bytes;
}

// The rows of a matrix that contain `elements`, split by row group.
std::vector<Interval> rows_by_group(const model::Parameter& matrix, Interval elements) {
  const Interval rows{elements.begin / matrix.columns, (elements.end + matrix.columns - 1) / matrix.columns};
  std::vector<Interval> parts;
  int64_t first = 0;
  for (const model::RowGroup& group : matrix.groups) {
    const Interval part = base::intersect(rows, {first, first + group.rows});
    if (!part.empty()) parts.push_back(part);
    first += group.rows;
  }
  return parts;
}

// Expands `elements` of a coded matrix. `read_words(interval, to)` reads words of the bucket.
template <typename Element, typename ReadWords>
void read_expanded(const model::Parameter& coded, Interval elements, Element* values, ReadWords read_words) {
  const std::vector<Interval> rows = rows_by_group(coded, elements);
  const std::vector<model::CodedRows> runs = model::coded_rows(coded, rows);
  std::vector<Element> words, numbers;
  for (size_t i = 0; i < runs.size(); ++i) {
    words.resize(static_cast<size_t>(runs[i].words().size()));
    read_words(runs[i].words(), words.data());
    const std::vector<std::byte> blocks = bytes_of_words(words, coded.format.word_bytes);
    const Interval own{rows[i].begin * coded.columns, rows[i].end * coded.columns};
    numbers.resize(static_cast<size_t>(own.size()));
    model::expand(coded.format, runs[i], runs[i].blocks(), blocks.data(), numbers.data());
    const Interval part = base::intersect(own, elements);
    std::copy_n(numbers.begin() + (part.begin - own.begin), part.size(),
                values + (part.begin - elements.begin));
  }
}

}  // namespace

template <typename Element>
void Checkpoint::read(const model::Bucket& bucket, Interval interval, State state, Element* values) {
  places_.for_each_run(bucket, interval,
                       [&](const model::Parameter&, Interval run, int there, Interval elsewhere) {
                         if (has(there, state))
                           read(there, elsewhere, state, values + (run.begin - interval.begin));
                       });
  if (state != State::kMaster) return;
  places_.for_each_coded(
      bucket, interval,
      [&](const model::Parameter& own, Interval run, int there, const model::Parameter& coded) {
        read_expanded(coded, {run.begin - own.offset, run.end - own.offset},
                      values + (run.begin - interval.begin),
                      [&](Interval words, Element* to) { read(there, words, state, to); });
      });
}

template void Checkpoint::read(const model::Bucket&, Interval, State, float*);
template void Checkpoint::read(const model::Bucket&, Interval, State, double*);

template <typename Element>
void Checkpoint::require_finite(int bucket, std::span<const Element> values) const {
  if (table_.buckets[static_cast<size_t>(bucket)].coded) return;  // any bits are valid codes
  const auto found =
      std::find_if_not(values.begin(), values.end(), [](Element v) { return std::isfinite(v); });
  if (found == values.end()) return;
  throw InputError(text(directory_.string(), ": bucket ", bucket, " of the parameters holds ", *found,
                        ": its training had diverged; go back to an earlier step"));
}

void Checkpoint::verify(const model::ParameterTable& table, std::span<const Interval> wanted) {
  SLUICE_ASSERT(wanted.size() == table.buckets.size(),
                text(wanted.size(), " intervals of ", table.buckets.size(), " buckets"));
  std::vector<std::vector<Interval>> bytes(files_.size());
  const auto want = [&](const model::Parameter&, Interval, int bucket, Interval elements) {
    for (const State state : {State::kMaster, State::kExpAvg, State::kExpAvgSq}) {
      if (!has(bucket, state)) continue;
      for (const Piece& scheduled : pieces(bucket, elements, state))
        bytes[scheduled.file].push_back(scheduled.bytes);
    }
  };
  for (const model::Bucket& bucket : table.buckets)
    places_.for_each_run(bucket, wanted[static_cast<size_t>(bucket.index)], want);
  const auto want_all = [&](const model::Parameter& own, Interval run, int bucket,
                            const model::Parameter& coded) { want(own, run, bucket, coded.stored()); };
  for (const model::Bucket& bucket : table.buckets)
    places_.for_each_coded(bucket, wanted[static_cast<size_t>(bucket.index)], want_all);
  for (size_t index = 0; index < files_.size(); ++index) {
    if (!bytes[index].empty()) file(index).blocks.require(bytes[index]);
  }
}

void Checkpoint::verify() {
  constexpr int64_t kAtOnceBytes = int64_t{256} << 20;
  for (size_t index = 0; index < files_.size(); ++index) {
    RankFile& checked = file(index);
    const int64_t size = checked.file.data_bytes();
    for (int64_t begin = 0; begin < size; begin += kAtOnceBytes) {
      const Interval part{begin, std::min(begin + kAtOnceBytes, size)};
      checked.blocks.require({&part, 1});
      checked.blocks.release_before(part.end);
    }
  }
  for (const Companion& companion : companions()) {
    if (companion.place.empty()) continue;
    const storage::Location place(companion.place);
    require_checksum(place, checksum_of(*place.open()), companion.checksum);
  }
}

void Checkpoint::look_through() {
  for (size_t index = 0; index < files_.size(); ++index) file(index);
  companions();
}

std::vector<Companion> Checkpoint::companions() const {
  std::vector<Companion> companions;
  for (const FileRecord& record : manifest_.companions) {
    const storage::Location location = directory_ / kCompanionDirectory / record.name;
    require_file(location, record);
    if (location.is_path() && record.bytes > kLargeCompanionBytes) {
      companions.push_back({.name = record.name, .place = location.path(), .checksum = record.checksum});
      continue;
    }
    std::string bytes = location.read();
    require_checksum(location, base::hash_bytes(bytes), record.checksum);
    companions.push_back({.name = record.name, .bytes = std::move(bytes)});
  }
  return companions;
}

Checkpoint::RankFile& Checkpoint::file(size_t index) {
  if (files_[index] == nullptr) files_[index] = open(records_[index]);
  return *files_[index];
}

std::vector<Checkpoint::Piece> Checkpoint::pieces(int bucket, Interval interval, State state) {
  std::vector<Piece> found;
  for (size_t index = 0; index < files_.size(); ++index) {
    const Interval held = records_[index].intervals[static_cast<size_t>(bucket)];
    const Interval common = base::intersect(held, interval);
    if (common.empty()) continue;
    const TensorInfo& tensor = *file(index).file.find(text("bucket.", bucket, ".", name_of(state)));
    found.push_back({index, common, bytes_of(tensor, held, common)});
  }
  return found;
}

storage::Location Checkpoint::location_of(const FileRecord& record) const {
  const bool shared =
      std::ranges::find(manifest_.shared, record.name, &FileRecord::name) != manifest_.shared.end();
  return shared ? directory_.parent() / kSharedDirectory / record.name : directory_ / record.name;
}

std::unique_ptr<Checkpoint::RankFile> Checkpoint::open(const FileRecord& record) const {
  const storage::Location location = location_of(record);
  require_file(location, record);
  try {
    if (!record.header) require_checksum(location, checksum_of(*location.open()), record.checksum);
    auto opened = std::make_unique<RankFile>(location);
    if (record.header) {
      require_checksum(location, opened->file.header_checksum(), *record.header);
    } else {
      opened->file.fetch({0, opened->file.data_bytes()});  // without checksums no block is fetched later
    }
    require_tensors(opened->file, record);
    return opened;
  } catch (const DamagedCheckpoint&) {
    throw;
  } catch (const InputError& error) {
    throw DamagedCheckpoint(error.what());
  }
}

// InputError unless the file holds the tensors of its record.
void Checkpoint::require_tensors(const SafetensorsFile& file, const FileRecord& record) const {
  for (size_t bucket = 0; bucket < record.intervals.size(); ++bucket) {
    const int64_t elements = record.intervals[bucket].size();
    if (elements == 0) continue;
    for (const State state : {State::kMaster, State::kExpAvg, State::kExpAvgSq}) {
      if (!has(static_cast<int>(bucket), state)) continue;
      file.require(text("bucket.", bucket, ".", name_of(state)), manifest_.type, {elements});
    }
  }
}

}  // namespace sluice::checkpoint
