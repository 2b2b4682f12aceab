// Shared by this module's tests: a model whose next token follows from the last one alone, and the tokenizer
// of its vocabulary. So a test knows every text that the real decoder and scheduler generate.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/ops/zeros.h>

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/utf8.h"
#include "corpus/tokenizer.h"
#include "generate/decoder.h"
#include "model/roles.h"
#include "model/test_tuning.h"

namespace sluice::serve {

// Ids below 256 are bytes; the words stand behind the two marks.
inline constexpr int64_t kBeginToken = 256, kEndToken = 257, kFirstWord = 258;
inline constexpr std::array<std::string_view, 6> kWords = {
    "<tool_call>", "{\"name\": \"look\", ", "\"arguments\": {\"city\": \"Oslo\"}}", "</tool_call>", "one two",
    "three"};
inline constexpr int64_t kVocabulary = kFirstWord + static_cast<int64_t>(kWords.size());

// Chats are rendered as "ROLE:CONTENT\n" for each message and "assistant:" at the end.
class ByteTokenizer : public corpus::Tokenizer {
 public:
  enum class Chats : uint8_t { kNone, kRendered };
  ByteTokenizer() : ByteTokenizer(Chats::kRendered) {}
  explicit ByteTokenizer(Chats chats) : chats_(chats) {
    vocabulary_ = kVocabulary;
    begin_id_ = kBeginToken;
    end_id_ = kEndToken;
  }
  std::vector<std::vector<int32_t>> encode_all(std::span<const std::string> texts) const override {
    std::vector<std::vector<int32_t>> all;
    for (const std::string& text : texts) {
      all.emplace_back();
      for (const char byte : text) all.back().push_back(static_cast<unsigned char>(byte));
    }
    return all;
  }
  std::vector<std::string> decode_all(std::span<const std::vector<int32_t>> ids) const override {
    std::vector<std::string> texts;
    for (const std::vector<int32_t>& each : ids) texts.push_back(decoded(each));
    return texts;
  }
  bool has_chats() const override { return chats_ == Chats::kRendered; }
  std::vector<corpus::EncodedChat> encode_prompts(std::span<const std::string> chats) const override {
    std::vector<corpus::EncodedChat> all;
    for (const std::string& chat : chats) all.push_back(rendered(base::Json::parse(chat)));
    return all;
  }

 private:
  // Bytes that are no character become U+FFFD, as decoders of byte tokens have them.
  static std::string decoded(const std::vector<int32_t>& ids) {
    std::string bytes, text;
    for (const int32_t id : ids) {
      if (id < kBeginToken) bytes += static_cast<char>(id);
      if (id >= kFirstWord) bytes += kWords[static_cast<size_t>(id - kFirstWord)];
    }
    for (std::string_view rest = bytes; !rest.empty();) {
      const size_t size = base::utf8_character_size(rest);
      text += size == 0 ? "\uFFFD" : rest.substr(0, size);
      rest.remove_prefix(std::max<size_t>(size, 1));
    }
    return text;
  }
  corpus::EncodedChat rendered(const base::Json& chat) const {
    corpus::EncodedChat made;
    std::string text;
    for (const base::Json& message : chat.at("messages")) {
      if (!message.contains("role"))
        return {.ids = {}, .mask = {}, .counts = {}, .fault = "messages[0] has no role"};
      text += message.at("role").get<std::string>() + ":" + message.at("content").get<std::string>() + "\n";
    }
    if (chat.contains("tools")) text += "tools:" + chat.at("tools").dump() + "\n";
    made.ids = encode(text + "assistant:");
    return made;
  }

  const Chats chats_;
};

// Says the successor of each byte, "abc" → "defg…", unless `next` names another. The second likeliest token
// is the successor's. Adapter k says the digit k and nothing else.
class ChainedModel {
 public:
  static constexpr int64_t kLongest = 512;

  explicit ChainedModel(const std::map<int64_t, int64_t>& next = {}, int64_t adapters = 0)
      : adapters_(adapters),
        table_(model::parameter_table(outline(adapters))),
        context_(layers::layer_context(table_.model, {}, kLongest, at::dtype(at::kFloat))) {
    at::set_num_threads(1);
    for (const model::Bucket& bucket : table_.buckets)
      weights_.push_back(at::zeros({bucket.size}, at::kFloat));
    for (const model::Bucket& bucket : table_.buckets) {
      for (const model::Parameter& p : bucket.parameters) fill(p, matrix(bucket, p));
    }
    set_next(next);
  }

  // Replaces the chain, as new parameters do.
  void set_next(const std::map<int64_t, int64_t>& next) {
    const model::Bucket& bucket = table_.head();
    const at::Tensor head = matrix(bucket, *model::find_parameter(bucket, model::roles::kHead)).zero_();
    const auto successor = [&](int64_t token) {
      const auto found = next.find(token);
      return found != next.end() ? found->second : token < 256 ? (token + 1) % 256 : token;
    };
    for (int64_t token = 0; token < kVocabulary; ++token) {
      head.select(0, successor(successor(token))).select(0, token).fill_(1.0);
      head.select(0, successor(token)).select(0, token).fill_(2.0);
    }
  }

  generate::ModelShard shard() const {
    return {table_,
            context_,
            [this](int bucket) { return weights_[static_cast<size_t>(bucket)]; },
            at::dtype(at::kFloat),
            /*stages=*/{},
            /*lanes=*/{},
            adapters_};
  }

 private:
  static model::Outline outline(int64_t adapters) {
    model::Outline outline{.layers = 1,
                           .hidden = kVocabulary,
                           .heads = 2,
                           .kv_heads = 1,
                           .head_dim = 4,
                           .ffn_hidden = 2,
                           .vocab = kVocabulary};
    if (adapters == 0) return outline;
    model::adapt(outline, {.rank = 1, .alpha = 1, .targets = {"down_proj"}});
    outline.lora = {
        .rank = adapters, .alpha = static_cast<double>(adapters), .targets = outline.lora.targets};
    return outline;
  }
  at::Tensor matrix(const model::Bucket& bucket, const model::Parameter& p) const {
    return weights_[static_cast<size_t>(bucket.index)]
        .narrow(0, p.offset, p.size())
        .view({p.rows, p.columns});
  }
  // Rows pass attention and MLP unchanged; the MLP's inner values are about 1, for adapters.
  static void fill(const model::Parameter& p, const at::Tensor& values) {
    if (p.one_dimensional() || p.factor == model::Factor::kLeft) values.fill_(1.0);
    if (p.role == model::roles::kEmbedding) values.fill_diagonal_(1.0);
    if (p.role == model::roles::kGateUp) values.fill_(0.0625);
    if (p.factor != model::Factor::kRight) return;
    for (int64_t adapter = 0; adapter < p.rows; ++adapter)
      values.select(0, adapter).select(0, '0' + adapter - 1).fill_(1e4);
  }

  int64_t adapters_;
  model::ParameterTable table_;
  layers::LayerContext context_;
  std::vector<at::Tensor> weights_;
};

// A tokenizer whose calls with a certain token fail.
class BrokenTokenizer final : public ByteTokenizer {
 public:
  explicit BrokenTokenizer(int32_t broken) : broken_(broken) {}
  std::vector<std::string> decode_all(std::span<const std::vector<int32_t>> ids) const override {
    for (const std::vector<int32_t>& each : ids) {
      if (std::ranges::find(each, broken_) != each.end()) throw std::runtime_error("the tokenizer has ended");
    }
    return ByteTokenizer::decode_all(ids);
  }

 private:
  const int32_t broken_;
};

inline std::vector<int64_t> ids_of(std::string_view text) {
  std::vector<int64_t> ids;
  for (const char byte : text) ids.push_back(static_cast<unsigned char>(byte));
  return ids;
}

}  // namespace sluice::serve
