// What users choose in planning and plans tell them, with the words for it.
#pragma once

#include <cstdint>
#include <string>

#include "base/words.h"

namespace sluice::strategy {

// The planner's algorithms (session/methods.h).
enum class MethodName : uint8_t { kOurs, kPaper, kExact };
inline constexpr base::Word<MethodName> kMethodNames[] = {
    {"ours", MethodName::kOurs}, {"paper", MethodName::kPaper}, {"exact", MethodName::kExact}};

// The exchange between lanes of a micro-batch: whatever takes least, one alone, or all in turn.
enum class ExchangeRule : uint8_t { kAuto, kRing, kHeads, kNested, kBalanced, kQueries, kCycle };
inline constexpr base::Word<ExchangeRule> kExchangeRules[] = {
    {"auto", ExchangeRule::kAuto},         {"ring", ExchangeRule::kRing},
    {"heads", ExchangeRule::kHeads},       {"nested", ExchangeRule::kNested},
    {"balanced", ExchangeRule::kBalanced}, {"queries", ExchangeRule::kQueries},
    {"cycle", ExchangeRule::kCycle},       {"p2p", ExchangeRule::kRing},
    {"a2a", ExchangeRule::kHeads},         {"a2a+p2p", ExchangeRule::kNested}};  // as Megatron-LM calls them

// What layers are cut into stages by.
enum class StageCut : uint8_t { kTime, kLayers };
inline constexpr base::Word<StageCut> kStageCuts[] = {{"time", StageCut::kTime},
                                                      {"layers", StageCut::kLayers}};

// The argument that proves a lower bound on a step's time (plan/bound.h).
enum class Proof : uint8_t { kPath, kPrices, kPigeonhole, kRings, kLongest };
inline constexpr base::Word<Proof> kProofs[] = {{"path", Proof::kPath},
                                                {"prices", Proof::kPrices},
                                                {"pigeonhole", Proof::kPigeonhole},
                                                {"rings", Proof::kRings},
                                                {"longest", Proof::kLongest}};

// The rule by which steps choose among candidates. kBest: the least estimated time, the earliest of equals.
// kCycle: candidate (step mod count), or the next one that holds the batch. kFixed: always the same
// candidate.
enum class Selection : uint8_t { kBest, kCycle, kFixed };

// InputError listing the words for any other text.
inline ExchangeRule parse_exchange_rule(const std::string& text) {
  return base::parse_word(
      kExchangeRules, "exchange", text,
      "choose auto, ring (p2p), heads (a2a), nested (a2a+p2p), balanced, queries or cycle");
}
inline StageCut parse_stage_cut(const std::string& text) {
  return base::parse_word(kStageCuts, "stages", text, "cut them by time or layers");
}

}  // namespace sluice::strategy
