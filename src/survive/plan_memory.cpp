#include "survive/plan_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include "base/error.h"
#include "base/hash.h"
#include "base/json_fields.h"

namespace sluice::survive {

namespace {

constexpr int64_t kPlaceBytes = int64_t{64} << 20;

// Precedes a plan's text.
struct Header {
  uint64_t key = 0;
  uint64_t bytes = 0;
  uint64_t hash = 0;  // the text's
};

uint64_t hash_of(const PlanKey& key) {
  base::CanonicalBytes bytes;
  bytes.add(static_cast<int64_t>(key.planner)).add(key.step);
  for (const strategy::Sequence& sequence : key.sequences) {
    bytes.add(sequence.document).add(sequence.begin_token).add(sequence.length_tokens);
    bytes.add(sequence.loss_tokens.value_or(-1));
  }
  return bytes.hash();
}

off_t place_of(const PlanKey& key) { return key.step % PlanMemory::kPlans * kPlaceBytes; }

}  // namespace

PlanMemory::PlanMemory() : file_(::memfd_create("sluice-plans", MFD_CLOEXEC)) {}

std::optional<strategy::StepPlan> PlanMemory::find(const PlanKey& key, int world_size) const {
  const off_t place = place_of(key);
  Header header;
  if (::pread(file_.fd(), &header, sizeof header, place) != sizeof header || header.key != hash_of(key) ||
      header.bytes > static_cast<uint64_t>(kPlaceBytes))
    return std::nullopt;
  std::string text(header.bytes, '\0');
  const ssize_t got =
      ::pread(file_.fd(), text.data(), text.size(), place + static_cast<off_t>(sizeof header));
  if (got != std::ssize(text) || base::hash_bytes(text) != header.hash) return std::nullopt;
  strategy::StepPlan plan =
      strategy::step_plan_from_json(base::parse_json(text, "a kept plan"), world_size, "a kept plan");
  plan.sequences = key.sequences;  // the text lacks how many targets have a loss
  return plan;
}

void PlanMemory::keep(const PlanKey& key, const strategy::StepPlan& plan) {
  const std::string text = base::json_text(strategy::to_json(plan));
  const Header header{.key = hash_of(key), .bytes = text.size(), .hash = base::hash_bytes(text)};
  std::string bytes(reinterpret_cast<const char*>(&header), sizeof header);
  bytes += text;
  if (std::ssize(bytes) > kPlaceBytes) return;
  static_cast<void>(!::pwrite(file_.fd(), bytes.data(), bytes.size(), place_of(key)));
}

}  // namespace sluice::survive
