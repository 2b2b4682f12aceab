#include "corpus/batch_list.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/json_fields.h"
#include "base/text.h"

namespace sluice::corpus {
namespace {

using base::InputError;
using base::Json;
using base::text;

constexpr const char* kForm = "give numbers of documents, or [number, begin, length]";

Sample sample_of(const Json& entry, const Blend& blend, int64_t context_length, const std::string& place) {
  const bool part = entry.is_array() && entry.size() == 3 && std::ranges::all_of(entry, [](const Json& each) {
                      return base::holds_integer<int64_t>(each);
                    });
  if (!part && !base::holds_integer<int64_t>(entry))
    throw InputError(text(place, ": ", base::excerpt(entry), " is no sequence: ", kForm));
  Sample sample{.document = part ? entry[0].get<int64_t>() : entry.get<int64_t>()};
  if (sample.document < 0 || sample.document >= blend.documents()) {
    throw InputError(text(place, ": there is no document ", sample.document, ": the corpora have ",
                          blend.documents(), ", numbered from 0"));
  }
  const int64_t length = blend.length(sample.document);
  sample.begin_token = part ? entry[1].get<int64_t>() : 0;
  sample.length_tokens = part ? entry[2].get<int64_t>() : std::min(length, context_length);
  const bool inside = sample.begin_token >= 0 && sample.begin_token <= length &&
                      sample.length_tokens <= length - sample.begin_token;
  if (inside && sample.length_tokens >= 2 && sample.length_tokens <= context_length) return sample;
  throw InputError(text(place, ": ", base::excerpt(entry), " of a document of ", length,
                        " tokens is no sequence: give 2 tokens to data.context_length, ", context_length,
                        ", inside the document"));
}

}  // namespace

std::vector<int64_t> BatchList::lengths() const {
  std::vector<int64_t> lengths;
  for (const std::vector<Sample>& samples : steps) {
    for (const Sample& sample : samples) lengths.push_back(sample.length_tokens);
  }
  return lengths;
}

BatchList read_batch_list(const std::filesystem::path& path, const Blend& blend, int64_t context_length) {
  BatchList list{.name = path.string(), .steps = {}};
  const std::string content = base::read_file(path);
  int64_t number = 0;
  for (const std::string& line : base::split(content, '\n')) {
    const std::string place = text(list.name, ":", ++number);
    if (base::trim(line).empty()) continue;
    const auto documents = base::require<Json>(base::parse_json(line, place), "documents", place);
    if (!documents.is_array() || documents.empty())
      throw InputError(text(place, ": documents is ", base::excerpt(documents), ": ", kForm));
    if (static_cast<int64_t>(documents.size()) > BatchSource::kMostSequences) {
      throw InputError(text(place, ": a step of ", documents.size(), " sequences: give at most ",
                            BatchSource::kMostSequences));
    }
    std::vector<Sample>& samples = list.steps.emplace_back();
    for (const Json& entry : documents) samples.push_back(sample_of(entry, blend, context_length, place));
  }
  if (list.steps.empty()) throw InputError(text(list.name, " lists no step: give a line for each"));
  list.fingerprint = base::hash_bytes(content);
  return list;
}

ListedBatches::ListedBatches(std::shared_ptr<const BatchList> list, int64_t first_step)
    : list_(std::move(list)), first_step_(first_step), step_(first_step) {}

Batch ListedBatches::next() {
  const auto steps = std::ssize(list_->steps);
  const int64_t place = list_->repeats ? (step_ - first_step_) % steps : step_ - first_step_;
  if (place >= steps) {
    throw InputError(text(list_->name, " lists ", list_->steps.size(), " steps from step ", first_step_,
                          " on, but step ", step_, " is needed: list more, or lower train.steps"));
  }
  Batch batch{.step = step_++, .samples = list_->steps[static_cast<size_t>(place)]};
  for (const Sample& sample : batch.samples) batch.tokens += sample.length_tokens;
  return batch;
}

void ListedBatches::restore(const SamplerState& state, const std::string& where) {
  if (state.fingerprint != list_->fingerprint || !state.cursors.empty()) {
    throw InputError(text(where, " was trained on other batches than ", list_->name,
                          " lists: name the file that it was trained with as data.batches"));
  }
  step_ = state.step;
}

}  // namespace sluice::corpus
