#include "serve/head_followers.h"

#include "base/json.h"
#include "base/json_fields.h"
#include "comm/order.h"

namespace sluice::serve {
namespace {

enum class Command : int64_t { kCompute, kWait, kTake, kEnd };

void tell(comm::Communicator* members, Command command, std::string text = "") {
  if (members != nullptr) comm::send_order(*members, {static_cast<int64_t>(command), std::move(text)});
}

}  // namespace

void HeadFollowers::compute(const TokenTexts& texts) const {
  if (members_ != nullptr) tell(members_, Command::kCompute, base::Json(texts).dump());
}

void HeadFollowers::wait() const { tell(members_, Command::kWait); }
void HeadFollowers::broadcast(const std::string& what) const { tell(members_, Command::kTake, what); }
void HeadFollowers::end() const { tell(members_, Command::kEnd); }

void follow(comm::Communicator& members, const HeadFollowerActions& actions) {
  while (true) {
    const comm::Order order = comm::receive_order(members);
    switch (static_cast<Command>(order.kind)) {
      case Command::kCompute:
        actions.compute(base::parse_json(order.text, "the leader's texts").get<TokenTexts>());
        break;
      case Command::kWait: break;
      case Command::kTake: actions.take(order.text); break;
      case Command::kEnd: return;
    }
  }
}

}  // namespace sluice::serve
