#include "mutate.h"

#include <algorithm>
#include <limits>
#include <vector>

#include "base/json_fields.h"

namespace sluice::fuzz {
namespace {

using base::Json;
using base::Rng;

template <typename T>
const T& any_of(const std::vector<T>& items, Rng& rng) {
  return items[rng.below(items.size())];
}

Json nested(int64_t depth) {
  Json json = Json::array();
  for (int64_t i = 0; i < depth; ++i) json = Json::array({std::move(json)});
  return json;
}

Json odd_value(Rng& rng) {
  static const std::vector<Json> values = {
      nullptr,
      true,
      false,
      "",
      "<1,1,1>",
      "1e9",
      Json::array(),
      Json::object(),
      0,
      1,
      -1,
      7,
      0.5,
      -0.0,
      1e-320,
      1e18,
      1e308,
      std::numeric_limits<int32_t>::max(),
      std::numeric_limits<int32_t>::min(),
      int64_t{1} << 31,
      int64_t{1} << 32,
      int64_t{1} << 53,
      int64_t{1} << 62,
      std::numeric_limits<int64_t>::max(),
      std::numeric_limits<int64_t>::min(),
      std::numeric_limits<uint64_t>::max(),
  };
  if (rng.below(40) == 0) return nested(rng.between(1, 300));
  return any_of(values, rng);
}

// Every value below `json`, itself included.
void collect(Json& json, std::vector<Json*>& places) {
  places.push_back(&json);
  if (json.is_structured()) {
    for (Json& child : json) collect(child, places);
  }
}

int64_t signed_or_zero(const Json& json) {
  return base::holds_integer<int64_t>(json) ? json.get<int64_t>() : 0;
}

Json near(const Json& value, Rng& rng) {
  if (value.is_number_float()) return value.get<double>() * any_of<double>({-1, 0, 0.5, 2, 1e6, 1e-6}, rng);
  if (value.is_string()) return damage(value.get<std::string>(), rng);
  if (!value.is_number_integer()) return odd_value(rng);
  const auto bits = static_cast<uint64_t>(signed_or_zero(value));
  const uint64_t changed = any_of<uint64_t>({bits + 1, bits - 1, bits * 2, bits / 2, bits * 1'000'000,
                                             uint64_t{0} - bits, bits ^ (uint64_t{1} << rng.below(64))},
                                            rng);
  return static_cast<int64_t>(changed);
}

void drop_child(Json& parent, Rng& rng) {
  if (!parent.is_structured() || parent.empty()) return;
  parent.erase(std::next(parent.begin(), static_cast<std::ptrdiff_t>(rng.below(parent.size()))));
}

void double_child(Json& parent, Rng& rng) {
  if (!parent.is_array() || parent.empty()) return;
  const Json child = parent[rng.below(parent.size())];
  parent.insert(parent.begin() + static_cast<std::ptrdiff_t>(rng.below(parent.size() + 1)), child);
}

void damage_once(Json& json, Rng& rng) {
  std::vector<Json*> places;
  collect(json, places);
  Json& place = *any_of(places, rng);
  switch (rng.below(6)) {
    case 0: place = odd_value(rng); break;
    case 1: {
      Json copy = *any_of(places, rng);
      place = std::move(copy);
      break;
    }
    case 2: drop_child(place, rng); break;
    case 3: double_child(place, rng); break;
    default: place = near(place, rng);
  }
}

// The first number behind `at` becomes another.
void replace_number(std::string& text, size_t at, Rng& rng) {
  static const std::vector<std::string> numbers = {"0",
                                                   "-1",
                                                   "0.5",
                                                   "1e-320",
                                                   "1e308",
                                                   "1e999",
                                                   "nan",
                                                   "inf",
                                                   "2147483647",
                                                   "2147483648",
                                                   "4294967296",
                                                   "1000000",
                                                   "9223372036854775807",
                                                   "-9223372036854775808",
                                                   "18446744073709551615"};
  const size_t begin = text.find_first_of("0123456789", at);
  if (begin == std::string::npos) return;
  const size_t end = std::min(text.find_first_not_of("0123456789.", begin), text.size());
  text.replace(begin, end - begin, any_of(numbers, rng));
}

void damage_once(std::string& text, Rng& rng) {
  const size_t at = rng.below(text.size() + 1);
  const size_t size = std::min<size_t>(text.size() - at, rng.between(1, 8));
  switch (rng.below(6)) {
    case 0: text.erase(at, size); break;
    case 1: text.insert(at, text.substr(at, size)); break;
    case 2: text.insert(at, 1, "0123456789-+.eE<>x,\"{}[]: \n\t#\\"[rng.below(30)]); break;
    case 3: text.insert(at, 1, static_cast<char>(rng.below(256))); break;
    case 4: replace_number(text, at, rng); break;
    default:
      if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << rng.below(8)));
  }
}

template <typename T>
T damaged(T input, Rng& rng) {
  for (int64_t times = rng.between(1, 4); times > 0; --times) damage_once(input, rng);
  return input;
}

}  // namespace

Json damage(Json json, Rng& rng) { return damaged(std::move(json), rng); }

std::string damage(std::string text, Rng& rng) { return damaged(std::move(text), rng); }

Json damaged_json(const Json& sound, Rng& rng) {
  const std::string bytes = base::json_text(rng.below(4) > 0 ? damage(sound, rng) : sound);
  return base::parse_json(rng.below(3) == 0 ? damage(bytes, rng) : bytes, "case");
}

}  // namespace sluice::fuzz
