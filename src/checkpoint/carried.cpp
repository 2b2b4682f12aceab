#include "checkpoint/carried.h"

#include <algorithm>
#include <functional>
#include <set>

#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/stream_hash.h"
#include "base/text.h"
#include "checkpoint/find.h"
#include "checkpoint/hugging_face.h"
#include "checkpoint/manifest.h"

namespace sluice::checkpoint {
namespace {

namespace fs = std::filesystem;
using base::text;

// A tensor to carry and the source of its bytes.
struct Piece {
  TensorInfo info;
  TensorFolder::Carried from;
  std::optional<BlockScaled> blocks;  // set if 8-bit floats are to become BF16
};

// In a quantised folder: reads an 8-bit tensor for conversion to BF16, if its scales are carried, too.
std::optional<BlockScaled> blocks_of(const TensorFolder& folder, const TensorFolder::Carried& carried,
                                     std::set<std::string>& scales) {
  if (!folder.quantised() || carried.tensor->format_type != "F8_E4M3") return std::nullopt;
  const auto found = std::ranges::find(folder.carried(), carried.tensor->name + "_scale_inv",
                                       [](const TensorFolder::Carried& each) { return each.tensor->name; });
  if (found == folder.carried().end()) return std::nullopt;
  BlockScaled blocks{.values = carried.file->data(*carried.tensor),
                     .scales = found->file->data(*found->tensor),
                     .scale_type = found->tensor->type};
  if (!fit_blocks(carried.tensor->shape, found->tensor->shape, folder.scale_block(), blocks))
    return std::nullopt;
  scales.insert(found->tensor->name);
  return blocks;
}

std::vector<Piece> pieces_of(const TensorFolder& folder) {
  std::vector<Piece> pieces;
  std::set<std::string> scales;
  for (const TensorFolder::Carried& carried : folder.carried()) {
    Piece piece{.info = *carried.tensor, .from = carried, .blocks = blocks_of(folder, carried, scales)};
    if (piece.blocks) piece.info.type = TensorType::kBFloat16;
    pieces.push_back(std::move(piece));
  }
  std::erase_if(pieces, [&](const Piece& piece) { return scales.contains(piece.info.name); });
  const auto width = [](const Piece& piece) { return element_bits(piece.info.type_name()); };
  std::ranges::stable_sort(pieces, std::greater(), width);  // wider elements first, so that all are aligned
  return pieces;
}

void write_narrowed(const Piece& piece, SafetensorsWriter& writer) {
  constexpr int64_t kChunk = int64_t{1} << 20;
  std::vector<float> values;
  std::vector<uint16_t> narrow;
  for (int64_t begin = 0; begin < piece.info.elements(); begin += kChunk) {
    values.resize(static_cast<size_t>(std::min(kChunk, piece.info.elements() - begin)));
    piece.blocks->read(begin, std::ssize(values), values.data());
    narrow.resize(values.size());
    std::ranges::transform(values, narrow.begin(), to_bfloat16);
    writer.write(narrow.data(), std::ssize(narrow) * static_cast<int64_t>(sizeof(uint16_t)));
  }
}

WrittenFile copy_file(const storage::Location& from, const storage::Location& to) {
  constexpr int64_t kChunk = int64_t{4} << 20;
  const std::unique_ptr<storage::Source> source = from.open();
  const std::unique_ptr<storage::Sink> sink = to.create(source->size());
  base::StreamHash hash;
  for (int64_t begin = 0; begin < source->size(); begin += kChunk) {
    const base::Interval part{begin, std::min(begin + kChunk, source->size())};
    source->fetch(part);
    const std::byte* const bytes = source->data() + part.begin;
    hash.add(bytes, static_cast<size_t>(part.size()));
    sink->write(bytes, static_cast<size_t>(part.size()));
    source->release(part);
  }
  sink->finish();
  return {source->size(), hash.value()};
}

// The companion's bytes in the newest checkpoint that has them, beside the one of `directory`.
std::optional<storage::Location> beside(const Companion& companion, const storage::Location& directory) {
  std::vector<SavedStep> saved = saved_steps(directory.parent().parent());
  std::ranges::reverse(saved);
  for (const SavedStep& step : saved) {
    const storage::Location file = step.directory / kCompanionDirectory / companion.name;
    if (file.is_file()) return file;
  }
  return std::nullopt;
}

}  // namespace

std::vector<Companion> model_companions(const fs::path& folder) {
  std::vector<std::string> left_out;
  std::vector<Companion> companions = read_companions(folder, &left_out);
  if (!left_out.empty()) {
    base::log_info(text(folder.string(), ": ", base::join(left_out, ", "),
                        " are other formats of the weights and will not be in exports"));
  }
  if (!has_hugging_face_weights(folder)) return companions;
  const HuggingFaceModel model(folder);
  companions.push_back(to_companion(model.record()));
  if (!model.weights().carried().empty())
    companions.push_back({.name = std::string(kCarriedTensors), .place = fs::absolute(folder)});
  return companions;
}

WrittenFile write_carried(const TensorFolder& folder, const storage::Location& to) {
  const std::vector<Piece> pieces = pieces_of(folder);
  std::vector<TensorInfo> infos;
  for (const Piece& piece : pieces) infos.push_back(piece.info);
  SafetensorsWriter writer(to, infos, {{"format", "pt"}});
  for (const Piece& piece : pieces) {
    if (piece.blocks) {
      write_narrowed(piece, writer);
    } else {
      const TensorInfo& tensor = *piece.from.tensor;
      writer.write(piece.from.file->data(tensor), tensor.end_byte - tensor.begin_byte);
    }
  }
  writer.finish();
  return {writer.size_bytes(), writer.checksum()};
}

WrittenFile write_companion(const Companion& companion, const storage::Location& directory) {
  const storage::Location to = directory / companion.name;
  to.parent().make_directory();
  if (companion.place.empty()) {
    to.write(companion.bytes);
    return {std::ssize(companion.bytes), base::hash_bytes(companion.bytes)};
  }
  std::error_code ignored;
  if (fs::is_directory(companion.place, ignored))
    return write_carried(HuggingFaceModel(companion.place).weights(), to);
  const bool there = fs::exists(companion.place, ignored);
  const std::optional<storage::Location> other =
      there ? storage::Location(companion.place) : beside(companion, directory);
  if (!other) {
    throw base::RunError(text(companion.place.string(), ", which goes with the model, is gone: put it back"));
  }
  const WrittenFile written = copy_file(*other, to);
  if (companion.checksum == 0 || written.checksum == companion.checksum) return written;
  throw DamagedCheckpoint(text(other->string(), " has hash ", base::hash_text(written.checksum),
                               ", expected ", base::hash_text(companion.checksum)));
}

}  // namespace sluice::checkpoint
