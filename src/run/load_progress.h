// How far a rank's parameters are loaded, as its activity's progress.
#pragma once

#include <cstdint>
#include <string>

#include "model/parameters.h"
#include "runtime/parameter_store.h"
#include "survive/activity.h"

namespace sluice::run {

// Counts numbers that were read for the rank's own slices, as float32. Both arguments outlive this object and
// the sources that it returns.
class LoadProgress {
 public:
  LoadProgress(survive::Activity& activity, const runtime::ParameterStore& store);

  void add(int64_t numbers);
  // The same sources; each read is counted.
  runtime::MasterSource counted(runtime::MasterSource source);
  runtime::PlainSource counted_plain(runtime::PlainSource source);

 private:
  survive::Activity& activity_;
  int64_t all_numbers_ = 0;
  int64_t read_numbers_ = 0;
};

// "1.25 GiB of 3.50 GiB (35 %)".
std::string bytes_loaded(int64_t done_bytes, int64_t all_bytes);

}  // namespace sluice::run
