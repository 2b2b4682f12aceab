#include "session/methods.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/text.h"

namespace sluice::session {
namespace {

struct Offer {
  MethodName name;
  std::function<MethodPtr(uint64_t seed)> make;
  bool proposes = true;
};

// The offers in their order.
std::vector<Offer>& offers() {
  static std::vector<Offer> offers{{MethodName::kOurs, [](uint64_t) { return plan::ours(); }}};
  return offers;
}

// "ours, paper or exact".
std::string names(bool that_propose) {
  std::vector<std::string> names;
  for (const Offer& offer : offers()) {
    if (offer.proposes || !that_propose)
      names.emplace_back(base::word_of(strategy::kMethodNames, offer.name));
  }
  const std::string last = names.back();
  names.pop_back();
  return names.empty() ? last : base::join(names, ", ") + " or " + last;
}

[[noreturn]] void refuse(const std::string& text) {
  throw base::InputError(base::text("method is '", text, "': choose ", names(false)));
}

const Offer& offer_named(MethodName name) {
  const auto found = std::ranges::find(offers(), name, &Offer::name);
  if (found == offers().end()) refuse(base::word_of(strategy::kMethodNames, name));
  return *found;
}

}  // namespace

void offer_method(MethodName name, std::function<MethodPtr(uint64_t seed)> make, bool proposes) {
  std::erase_if(offers(), [&](const Offer& offer) { return offer.name == name; });
  offers().push_back({name, std::move(make), proposes});
}

MethodName parse_method(const std::string& text) {
  const auto name = base::find_word(strategy::kMethodNames, text);
  if (!name) refuse(text);
  return offer_named(*name).name;
}

MethodPtr method_named(MethodName name, uint64_t seed) { return offer_named(name).make(seed); }

void check_proposes(MethodName name) {
  if (offer_named(name).proposes) return;
  throw base::InputError(base::text("method is '", base::word_of(strategy::kMethodNames, name),
                                    "', which plans batches: propose with ", names(true)));
}

}  // namespace sluice::session
