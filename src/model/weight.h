// A weight of a layer as a value: its operands, its TP cut, its names in files. Everything else is derived
// (model/derive.h).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/weight_format.h"

namespace sluice::model {

// Storage of a frozen base's matrices as codes. Codes travel as numbers of the compute type with the same
// bits ("words").
struct BaseFormat {
  base::WeightFormat format = base::WeightFormat::kPlain;
  int64_t word_bytes = 0;

  bool coded() const { return format != base::WeightFormat::kPlain; }
  int64_t block_words() const { return (base::block_bytes(format) + word_bytes - 1) / word_bytes; }
  bool operator==(const BaseFormat&) const = default;
};

// A run of a weight's rows that TP cuts on its own.
struct RowGroup {
  int64_t rows = 0;
  // Rows are cut in units: heads × head_dim rows for attention, single rows otherwise; 0 units: replicated.
  int64_t units = 0;
  // Heights of the pieces that alternate within a unit; none: the unit is one piece. Examples: a head's query
  // and its gate; a key head's query, key, values and gates.
  std::vector<int64_t> turns = {};
  bool operator==(const RowGroup&) const = default;
};

// Initial values: normal(0, 0.02), for kResidual divided by √(2·blocks), since these matrices add to the
// residual. For kAdapter uniform in ±1/√inputs, as in PEFT. For kDecay logarithms of decays that are uniform
// up to 16. For kStep the inverse softplus of steps from 0.001 to 0.1 with uniform logarithms (Mamba-2's).
// For kNorm the norms of the adapted matrix's outputs, as the run computes with it.
enum class Start : uint8_t { kNormal, kResidual, kOne, kZero, kAdapter, kDecay, kStep, kNorm };

// How an update changes a trained parameter: by its gradient, as the optimizer does, or by counts in the
// gradient's place. A router's correction counts each expert's visits minus the mean, times experts: a whole
// number. It moves a fixed step against the sign of the count (Wang et al., Auxiliary-Loss-Free Load
// Balancing, 2024). Loads become the visits themselves.
enum class Learns : uint8_t { kByGradient, kAsRouterBias, kAsLoads };

// A weight's role in the arithmetic of its part.
enum class Use : uint8_t {
  kNorm,    // norm before or behind the part
  kIn,      // a product with the part's normed rows: x·wᵀ
  kInner,   // a product with the result of another weight: x·wᵀ
  kOut,     // a product whose result is added to the residual rows; stored [in, out]: a·w
  kVector,  // not multiplied with rows: biases, head norms, decays, convolutions
};
enum class Place : uint8_t { kShard, kAll };  // rows of a product: this TP rank's shard, or all
// How files hold a weight: as stored; [out, in] where [in, out] is stored; [rows, 1, columns]; a vector as
// [1, 1, rows, 1].
enum class FileForm : uint8_t { kAsStored, kTransposed, kDepthwise, kByHead };

// The adapters of one of a weight's tensors.
struct AdapterPair {
  int tensor = 0;
  int64_t rank = 0;
  bool left_trained = true, right_trained = true;
  bool has_magnitude = false, magnitude_trained = true;  // DoRA
  bool operator==(const AdapterPair&) const = default;
};

inline constexpr int kNormedRows = -1;  // Weight::reads

struct Weight {
  std::string_view role;  // from model/roles.h, unique in its layer
  // Its tensors in files: one for all groups, or one for each. {} stands for an expert's number.
  std::vector<std::string> tensors;
  std::vector<RowGroup> groups;
  int64_t columns = 1;
  Use use = Use::kVector;
  int reads = kNormedRows;    // kInner: index in Part::weights of the weight whose result it reads
  Place place = Place::kAll;  // rows of the result
  bool wide = false;          // the result is float or wider
  bool kept = true;           // the result itself stays for backward
  int64_t experts = 0;        // number of experts, each with these groups; 0: none
  int64_t visits = 0;         // number of experts that a token visits
  FileForm form = FileForm::kAsStored;
  int64_t stacked = 0;  // files hold one tensor of so many experts (Parameter::stacked)
  Start start = Start::kNormal;
  Learns learns = Learns::kByGradient;
  bool adapts = true;   // may have adapters
  bool trained = true;  // false: frozen, without gradient
  bool fixed = false;   // never trained: a buffer in files and transformers
  BaseFormat format = {};
  std::vector<AdapterPair> adapters = {};

  bool is_product() const { return use == Use::kIn || use == Use::kInner || use == Use::kOut; }
  int64_t rows() const {  // all experts' rows
    int64_t all = 0;
    for (const RowGroup& group : groups) all += group.rows;
    return all * (experts > 0 ? experts : 1);
  }
  bool operator==(const Weight&) const = default;
};

}  // namespace sluice::model
