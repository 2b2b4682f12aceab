#include "session/methods.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace sluice::session {
namespace {

struct Offer {
  std::string name;
  std::function<MethodPtr(uint64_t seed)> make;
  bool proposes = true;
};

// The offers in their order.
std::vector<Offer>& offers() {
  static std::vector<Offer> offers{{"ours", [](uint64_t) { return plan::ours(); }}};
  return offers;
}

// "ours, paper or exact".
std::string names(bool that_propose) {
  std::vector<std::string> names;
  for (const Offer& offer : offers()) {
    if (offer.proposes || !that_propose) names.push_back(offer.name);
  }
  const std::string last = names.back();
  names.pop_back();
  return names.empty() ? last : base::join(names, ", ") + " or " + last;
}

const Offer& offer_named(const std::string& name) {
  const auto found = std::ranges::find(offers(), name, &Offer::name);
  if (found != offers().end()) return *found;
  throw base::InputError(base::text("method is '", name, "': choose ", names(false)));
}

}  // namespace

void offer_method(const std::string& name, std::function<MethodPtr(uint64_t seed)> make, bool proposes) {
  std::erase_if(offers(), [&](const Offer& offer) { return offer.name == name; });
  offers().push_back({name, std::move(make), proposes});
}

MethodPtr method_named(const std::string& name, uint64_t seed) { return offer_named(name).make(seed); }

MethodPtr proposing_method_named(const std::string& name, uint64_t seed) {
  const Offer& offer = offer_named(name);
  if (offer.proposes) return offer.make(seed);
  throw base::InputError(
      base::text("method is '", name, "', which plans batches: propose with ", names(true)));
}

}  // namespace sluice::session
