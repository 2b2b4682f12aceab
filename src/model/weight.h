// A weight of a layer as a value: what it multiplies, how TP cuts it, what files call it. Everything else
// about it follows (model/derive.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/weight_format.h"

namespace sluice::model {

// How a frozen base keeps its matrices: in codes, which travel as so many numbers of the compute type, whose
// bits they are ("words").
struct BaseFormat {
  base::WeightFormat format = base::WeightFormat::kPlain;
  int64_t word_bytes = 0;

  bool coded() const { return format != base::WeightFormat::kPlain; }
  int64_t block_words() const { return (base::block_bytes(format) + word_bytes - 1) / word_bytes; }
  bool operator==(const BaseFormat&) const = default;
};

// A run of rows of a weight that TP cuts on its own.
struct RowGroup {
  int64_t rows = 0;
  // Rows are cut in units: heads × head_dim rows for attention, single rows otherwise; 0 units: replicated.
  int64_t units = 0;
  // Heights of the pieces that take turns within a unit; none: the unit is one piece. A head's query and its
  // gate, or a key head's query, key, values and gates.
  std::vector<int64_t> turns = {};
  bool operator==(const RowGroup&) const = default;
};

// Initial values: normal(0, 0.02); the same divided by √(2·blocks), of matrices that add to the residual; all
// one; all zero; even in ±1/√inputs, as PEFT draws adapters; the logarithms of decays, these even up to 16;
// and what softplus makes steps of that are 0.001 to 0.1, their logarithms even (Mamba-2's).
enum class Start : uint8_t { kNormal, kResidual, kOne, kZero, kAdapter, kDecay, kStep };

// How an update changes a trained parameter: by its gradient, as the optimiser says; or by what passes count
// in a gradient's place. A correction counts each expert's visits beyond the mean one's, times experts, which
// makes whole numbers, and goes a fixed step against their sign (Wang et al., Auxiliary-Loss-Free Load
// Balancing, 2024); loads become the visits themselves.
enum class Learns : uint8_t { kByGradient, kAsRouterBias, kAsLoads };

// A weight's role in the arithmetic of its part.
enum class Use : uint8_t {
  kNorm,    // of the part's norm before or behind
  kIn,      // a product with the part's normed rows: x·wᵀ
  kInner,   // a product with the result of another weight: x·wᵀ
  kOut,     // a product whose result is added to the rows that pass; stored [in, out]: a·w
  kVector,  // no product with rows: biases, norms of heads, decays, convolutions
};
enum class Place : uint8_t { kShard, kAll };  // of a product's rows: this TP rank's shard, or all
// How files hold a weight: as it is stored; [out, in] where [in, out] is stored; [rows, 1, columns]; a vector
// as [1, 1, rows, 1].
enum class FileForm : uint8_t { kAsStored, kTransposed, kDepthwise, kByHead };

// The adapters of one of a weight's tensors.
struct AdapterPair {
  int tensor = 0;
  int64_t rank = 0;
  bool left_trained = true, right_trained = true;
  bool operator==(const AdapterPair&) const = default;
};

inline constexpr int kNormedRows = -1;  // Weight::reads

struct Weight {
  std::string_view role;  // of model/roles.h: unique in its layer
  // Its tensors in files: one, or one for each group. {} stands for an expert's number.
  std::vector<std::string> tensors;
  std::vector<RowGroup> groups;
  int64_t columns = 1;
  Use use = Use::kVector;
  int reads = kNormedRows;    // of kInner: the place in Part::weights of the weight whose result it reads
  Place place = Place::kAll;  // of the result's rows
  bool wide = false;          // the result is in float or wider
  bool kept = true;           // the result itself stays for the backward
  int64_t experts = 0;        // the groups are those of each of so many experts; 0: of none
  int64_t visits = 0;         // the experts that a token visits
  FileForm form = FileForm::kAsStored;
  int64_t stacked = 0;  // files hold one tensor of so many experts (Parameter::stacked)
  Start start = Start::kNormal;
  Learns learns = Learns::kByGradient;
  bool adapts = true;   // may have adapters
  bool trained = true;  // frozen ones have no gradient
  bool fixed = false;   // nothing trains it: files and transformers have it as a buffer
  BaseFormat format = {};
  std::vector<AdapterPair> adapters = {};

  bool is_product() const { return use == Use::kIn || use == Use::kInner || use == Use::kOut; }
  int64_t rows() const {  // of all experts
    int64_t all = 0;
    for (const RowGroup& group : groups) all += group.rows;
    return all * (experts > 0 ? experts : 1);
  }
  bool operator==(const Weight&) const = default;
};

}  // namespace sluice::model
