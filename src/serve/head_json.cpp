#include <algorithm>
#include <boost/archive/iterators/base64_from_binary.hpp>
#include <boost/archive/iterators/transform_width.hpp>
#include <charconv>
#include <cmath>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "base/json.h"
#include "base/text.h"
#include "serve/head_api.h"

namespace sluice::serve {
namespace {

using base::Json;
using base::text;
using Activation = ServedHead::Activation;

constexpr double kShortest = 1e-12;  // least divisor, as in torch's normalize

double dot(const std::vector<float>& a, const std::vector<float>& b) {
  return std::inner_product(a.begin(), a.end(), b.begin(), 0.0, std::plus(),
                            [](float x, float y) { return static_cast<double>(x) * y; });
}

double cosine(const std::vector<float>& a, const std::vector<float>& b) {
  return dot(a, b) / (std::max(std::sqrt(dot(a, a)), kShortest) * std::max(std::sqrt(dot(b, b)), kShortest));
}

// The first `dimensions` numbers if requested, divided by their length unless the request forbids it.
std::vector<float> embedding_of(std::vector<float> row, const HeadRequest& request) {
  if (request.dimensions) row.resize(static_cast<size_t>(*request.dimensions));
  if (!request.normalized) return row;
  const double length = std::max(std::sqrt(dot(row, row)), kShortest);
  for (float& each : row) each = static_cast<float>(each / length);
  return row;
}

double sigmoid(double value) { return 1 / (1 + std::exp(-value)); }

std::vector<float> activated(std::vector<float> row, Activation activation) {
  if (activation == Activation::kSigmoid)
    std::ranges::transform(row, row.begin(), [](float each) { return static_cast<float>(sigmoid(each)); });
  if (activation != Activation::kSoftmax) return row;
  const double largest = *std::ranges::max_element(row);
  double sum = 0;
  for (const float each : row) sum += std::exp(each - largest);
  for (float& each : row) each = static_cast<float>(std::exp(each - largest) / sum);
  return row;
}

void require_finite(const std::vector<float>& row) {
  if (std::ranges::all_of(row, [](float each) { return std::isfinite(each); })) return;
  throw base::RunError("the model's numbers of a text are not finite: look at its weights");
}

// The bytes of the numbers, least significant first.
std::string base64_of(const std::vector<float>& row) {
  using boost::archive::iterators::base64_from_binary, boost::archive::iterators::transform_width;
  using Letters = base64_from_binary<transform_width<const char*, 6, 8>>;
  const size_t bytes = row.size() * sizeof(float);
  std::string packed(bytes + 2, '\0');  // encoding reads up to two bytes more
  std::memcpy(packed.data(), row.data(), bytes);
  const size_t padding = (3 - bytes % 3) % 3;
  std::string letters(Letters(packed.data()), Letters(packed.data() + bytes + padding));
  letters.replace(letters.size() - padding, padding, padding, '=');
  return letters;
}

// The fewest digits that give the same number again.
std::string list_of(const std::vector<float>& row) {
  std::string list = "[";
  for (const float each : row) {
    char digits[32];
    const auto end = std::to_chars(std::begin(digits), std::end(digits), each).ptr;
    if (list.size() > 1) list += ',';
    list.append(std::begin(digits), end);
  }
  return list + "]";
}

std::string data_of(const std::vector<float>& row, const HeadRequest& request) {
  return request.base64 ? "\"" + base64_of(row) + "\"" : list_of(row);
}

Json classified(const std::vector<float>& row, const ServedHead& head) {
  const auto largest = static_cast<size_t>(std::ranges::max_element(row) - row.begin());
  return {{"label", largest < head.labels.size() ? Json(head.labels[largest]) : Json()},
          {"num_classes", row.size()}};
}

// A text's part of the response. Numbers are written directly,
// because JSON values would take many times their bytes.
std::string item_of(size_t index, const HeadRequest& request, const ServedHead& head,
                    const std::vector<float>& own) {
  if (request.endpoint == HeadEndpoint::kEmbeddings)
    return text(R"({"object":"embedding","index":)", index, R"(,"embedding":)",
                data_of(embedding_of(own, request), request), "}");
  const bool embeds = head.output == ServedHead::Output::kEmbedding;
  const std::vector<float> row =
      embeds ? embedding_of(own, request)
             : activated(own, request.activated ? head.activation : Activation::kNone);
  if (request.endpoint == HeadEndpoint::kPooling)
    return text(R"({"object":"pooling","index":)", index, R"(,"data":)", data_of(row, request), "}");
  const Json about = classified(row, head);
  return text(R"({"index":)", index, R"(,"label":)", base::json_text(about.at("label")), R"(,"probs":)",
              list_of(row), R"(,"num_classes":)", base::json_text(about.at("num_classes")), "}");
}

// By document.
std::vector<double> scores_of(const HeadRequest& request, const ServedHead& head,
                              const std::vector<std::vector<float>>& numbers) {
  std::vector<double> scores;
  if (head.output == ServedHead::Output::kEmbedding) {
    const auto queries = static_cast<size_t>(request.queries);
    for (size_t i = queries; i < numbers.size(); ++i)
      scores.push_back(cosine(numbers[queries == 1 ? 0 : i - queries], numbers[i]));
    return scores;
  }
  for (const std::vector<float>& each : numbers)
    scores.push_back(request.activated && head.activation != Activation::kNone ? sigmoid(each.front())
                                                                               : each.front());
  return scores;
}

Json scored(const std::vector<double>& scores) {
  Json data = Json::array();
  for (size_t i = 0; i < scores.size(); ++i)
    data.push_back({{"index", i}, {"object", "score"}, {"score", scores[i]}});
  return data;
}

// The best first; ties in their given order.
Json ranked(const HeadRequest& request, const std::vector<double>& scores) {
  std::vector<size_t> order(scores.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater(), [&](size_t i) { return scores[i]; });
  if (request.top_n.value_or(0) > 0)
    order.resize(std::min(order.size(), static_cast<size_t>(*request.top_n)));
  Json results = Json::array();
  for (const size_t i : order) {
    Json& result = results.emplace_back(Json{{"index", i}, {"relevance_score", scores[i]}});
    if (request.return_documents) result["document"] = {{"text", request.documents[i]}};
  }
  return results;
}

}  // namespace

std::string head_response_body(const HeadRequest& request, const AnswerHead& about, const ServedHead& head,
                               const std::vector<std::vector<float>>& numbers) {
  for (const std::vector<float>& row : numbers) require_finite(row);
  const int64_t tokens = request.prompt_tokens();
  Json response = {{"id", about.id},
                   {"object", "list"},
                   {"created", about.created},
                   {"model", about.model},
                   {"system_fingerprint", about.fingerprint},
                   {"usage", {{"prompt_tokens", tokens}, {"total_tokens", tokens}}}};
  if (request.endpoint == HeadEndpoint::kRerank) {
    response.erase("object");
    response["results"] = ranked(request, scores_of(request, head, numbers));
    return base::json_text(response);
  }
  if (request.endpoint == HeadEndpoint::kScore) {
    response["data"] = scored(scores_of(request, head, numbers));
    return base::json_text(response);
  }
  std::string body = base::json_text(response);
  body.pop_back();
  body += R"(,"data":[)";
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) body += ',';
    body += item_of(i, request, head, numbers[i]);
  }
  return body + "]}";
}

}  // namespace sluice::serve
