#ifdef SLUICE_CUDNN

#include <ATen/Context.h>
#include <c10/cuda/CUDAGuard.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "base/text.h"
#include "ops/kept_bytes.h"
#include "ops/libraries/attention_plans.h"
#include "ops/made_ahead.h"

namespace sluice::ops::cudnn {
namespace {

constexpr int kMostThreads = 16;

using Key = std::pair<int, GraphShape>;  // by GPU

GraphShape with_sizes(GraphShape shape, const PlannedSizes& sizes) {
  shape.sequences = sizes.sequences;
  shape.longest = sizes.longest;
  shape.longest_keys = sizes.longest_keys;
  shape.rows = sizes.rows;
  shape.key_rows = sizes.key_rows;
  return shape;
}

Key kind_of(GraphShape shape, int gpu) {
  shape.direction = Direction::kForward;
  shape.deterministic = false;
  return {gpu, with_sizes(shape, {})};
}

// Plans of one library and one kind of GPU lie in a folder of their own.
KeptBytes kept_for(int gpu, const std::filesystem::path& cache) {
  if (cache.empty()) return KeptBytes(cache);
  cudaDeviceProp properties{};
  cudaGetDeviceProperties(&properties, gpu);
  std::string name = base::text(properties.name, "-", properties.major, properties.minor, "-",
                                properties.multiProcessorCount, "-cudnn-", library_version());
  std::ranges::replace_if(
      name, [](unsigned char c) { return std::isalnum(c) == 0 && c != '-'; }, '_');
  return KeptBytes(cache / "attention_plans" / name);
}

class Plans {
 public:
  std::shared_ptr<Plan> plan_of(const GraphShape& shape, const PlannedSizes& sizes, int gpu) {
    ask_for(kind_of(shape, gpu));
    if (has_limits_ && !plans_.has({gpu, with_sizes(shape, sizes)})) ++inside_steps_;
    return plan_alone(shape, sizes, gpu);
  }

  std::shared_ptr<Plan> plan_alone(const GraphShape& shape, const PlannedSizes& sizes, int gpu) {
    return plans_.get({gpu, with_sizes(shape, sizes)});
  }

  void make_ahead(const RowLimits& limits, const std::filesystem::path& cache) {
    {
      const std::lock_guard lock(cache_mutex_);
      cache_ = cache;
    }
    const std::lock_guard lock(mutex_);
    limits_ = limits;
    has_limits_ = true;
    for (const Key& kind : kinds_) make_all_of(kind);
  }

  std::string in_words() const {
    std::string words = base::human_count(made_ + from_disk_, "plan", "plans");
    if (from_disk_ > 0) words += base::text(", ", from_disk_.load(), " of them from disk");
    if (inside_steps_ > 0) words += base::text(", ", inside_steps_.load(), " inside a step");
    return words;
  }

 private:
  // Threads that ask for a kind whose plans are being made wait here.
  void ask_for(const Key& kind) {
    const std::lock_guard lock(mutex_);
    if (kinds_.insert(kind).second && has_limits_) make_all_of(kind);
  }

  void make_all_of(const Key& kind) {
    const auto& [gpu, shape] = kind;
    std::vector<Key> keys;
    const auto add = [&, gpu = gpu](const GraphShape& directed, const std::vector<PlannedSizes>& all) {
      for (const PlannedSizes& sizes : all) keys.emplace_back(gpu, with_sizes(directed, sizes));
    };
    if (shape.page_rows > 0) {
      add(shape, all_planned_page_sizes(*limits_));
    } else {
      GraphShape backward = shape;
      backward.direction = Direction::kBackward;
      backward.deterministic = at::globalContext().deterministicAlgorithms();
      add(shape, all_planned_sizes(Direction::kForward, *limits_));
      add(backward, all_planned_sizes(Direction::kBackward, *limits_));
    }
    // Processes of one node begin at different plans, and find each other's on disk.
    const auto first = static_cast<size_t>(gpu) * keys.size() / 8 % keys.size();
    std::ranges::rotate(keys, keys.begin() + static_cast<std::ptrdiff_t>(first));
    const int cores = static_cast<int>(std::thread::hardware_concurrency());
    plans_.make_all(
        keys, std::clamp(cores, 1, kMostThreads), [gpu = gpu] { cudaSetDevice(gpu); }, end_thread);
  }

  std::filesystem::path cache() const {
    const std::lock_guard lock(cache_mutex_);
    return cache_;
  }

  std::shared_ptr<Plan> make(const Key& key) {
    const auto& [gpu, shape] = key;
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(gpu));
    const KeptBytes kept = kept_for(gpu, cache());
    const std::string name = to_text(shape);
    if (const std::optional<std::string> bytes = kept.read(name)) {
      if (std::shared_ptr<Plan> loaded = Plan::load(*bytes)) {
        ++from_disk_;
        return loaded;
      }
    }
    std::string fault;
    std::shared_ptr<Plan> made = Plan::make(shape, fault);
    if (made == nullptr) return nullptr;
    ++made_;
    if (const std::string bytes = made->to_bytes(); !bytes.empty()) kept.write(name, bytes);
    return made;
  }

  MadeAhead<Key, Plan> plans_{[this](const Key& key) { return make(key); }};
  std::atomic<int64_t> made_{0}, from_disk_{0}, inside_steps_{0};
  std::atomic<bool> has_limits_{false};
  std::mutex mutex_;  // of what follows
  std::set<Key> kinds_;
  std::optional<RowLimits> limits_;
  mutable std::mutex cache_mutex_;  // held briefly, by makers as well
  std::filesystem::path cache_;
};

// Lives as long as the process: cuDNN is unreliable after main().
Plans& plans() {
  static Plans* const plans = new Plans;
  return *plans;
}

}  // namespace

std::shared_ptr<Plan> plan_of(const GraphShape& shape, const PlannedSizes& sizes, int gpu) {
  return plans().plan_of(shape, sizes, gpu);
}
std::shared_ptr<Plan> plan_alone(const GraphShape& shape, const PlannedSizes& sizes, int gpu) {
  return plans().plan_alone(shape, sizes, gpu);
}
void make_plans_ahead(const RowLimits& limits, const std::filesystem::path& cache) {
  plans().make_ahead(limits, cache);
}
std::string plans_in_words() { return plans().in_words(); }

}  // namespace sluice::ops::cudnn

#endif
